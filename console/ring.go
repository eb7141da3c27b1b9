package console

import (
	"math"
	"time"
)

// view draws a cycle as a ring: one place for each process, and an arrow to the one that it waits
// for.
func (k *knot) view() knotView {
	v := knotView{Sentences: k.sentences(), Advice: k.advice(), Stands: short(min(k.stands, 1<<62*time.Nanosecond))}
	seen := map[string]bool{}
	for _, l := range k.links {
		if n := l.wish.name; !seen[n] {
			seen[n] = true
			v.Names = append(v.Names, namedLink{shown(n), lockLink(n)})
		}
	}
	n := len(k.links)
	if n > 8 { // the sentences say it better
		return v
	}
	const cx, cy, radius, dot = 110, 110, 78, 18
	at := func(i int, r float64) (float64, float64) {
		a := 2*math.Pi*float64(i)/float64(n) - math.Pi/2
		return cx + r*math.Cos(a), cy + r*math.Sin(a)
	}
	for i, l := range k.links {
		x, y := at(i, radius)
		v.Points = append(v.Points, point{X: int(x), Y: int(y), Text: l.from.who, Mark: i + 1})
		x2, y2 := at(i+1, radius)
		dx, dy := x2-x, y2-y
		length := math.Hypot(dx, dy)
		ux, uy := dx/length, dy/length
		ox, oy := -uy*7, ux*7 // two processes have an arrow each way
		v.Arrows = append(v.Arrows, arrow{X1: int(x + ux*dot + ox), Y1: int(y + uy*dot + oy), X2: int(x2 - ux*(dot+6) + ox),
			Y2: int(y2 - uy*(dot+6) + oy)})
	}
	return v
}
