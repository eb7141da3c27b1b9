package testenv

import (
	"errors"

	"github.com/holdfast-lock/holdfast/driver"
)

// Repeated makes a call again while it is not answered, as a client does. An SQL server ends the
// transaction of a process that stands still for a second. The call must do the same if it is made twice.
func Repeated(call func() error) error {
	err := call()
	for n := 0; n < 5 && (errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrUncertain)); n++ {
		err = call()
	}
	return err
}
