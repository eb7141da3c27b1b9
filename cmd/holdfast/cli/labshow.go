package cli

import (
	"io"

	"github.com/spf13/cobra"
)

func (a *app) labShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID...",
		Short: "Explain algorithms of the lab, without running them",
		Long: `Explain algorithms of the lab: where each is used, what goes wrong, and how holdfast survives. Then
come its commands and the order of events that breaks it.`,
		Example: "  holdfast lab show setpx-del",
		RunE: ours(func(_ *cobra.Command, ids []string) error {
			rows, err := labRows(ids)
			if err != nil {
				return err
			}
			for i := range rows {
				text := rows[i].Explain()
				if i > 0 {
					text = "\n\n" + text
				}
				if _, err := io.WriteString(a.stdout, text); err != nil {
					return err
				}
			}
			return nil
		}),
		ValidArgsFunction: labIDs,
	}
}
