package browser

import (
	"fmt"
	"image"
	"image/color"
	"maps"
	"slices"
)

// Views are the ways in which a page must look well.
var Views = map[string]View{
	"light": {Width: 1280, Height: 800},
	"dark":  {Width: 1280, Height: 800, Dark: true},
	"phone": {Width: 390, Height: 844},
	"print": {Width: 794, Height: 1123, Print: true},
}

// faults returns what is wrong with the page in view, as far as the page itself can say.
const faults = `(() => {
  const wrong = [];
  const wide = document.documentElement.scrollWidth;
  const view = document.documentElement.clientWidth; // a phone makes innerWidth as large as the page
  if (wide > view) wrong.push("the page is " + wide + " pixels wide, the view " + view);
  for (const th of document.querySelectorAll("th:not([scope=row])")) {
    const all = document.createRange();
    all.selectNodeContents(th);
    const lines = new Set([...all.getClientRects()].map(r => Math.round(r.top)));
    if (lines.size > 1) wrong.push("the head of a column is broken into " + lines.size + " lines: " + th.textContent);
  }
  const parts = c => c.match(/[\d.]+/g).map(Number);
  const light = c => {
    const [r, g, b] = parts(c).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parts(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return getComputedStyle(e).backgroundColor;
    }
    return "rgb(255, 255, 255)";
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || e.closest("svg, style, .unseen") || !e.getClientRects().length) continue;
    seen++;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) wrong.push("a contrast of " + contrast.toFixed(1) + ": " + texts.currentNode.data.trim());
  }
  if (seen < 10) wrong.push("only " + seen + " texts can be seen");
  return wrong;
})()`

// Check looks at a file in some of Views, or in all, and reports a page that is wider than the view, the broken head
// of a column, text that can hardly be read, an empty first screen, and a dark page for readers who want a
// light one, or the reverse. At the element with the id red, or at the top if that is empty, there must be
// a red bar in view. None of it depends on fonts.
func (b *Browser) Check(file, red, name string, views ...string) {
	b.t.Helper()
	if len(views) == 0 {
		views = slices.Sorted(maps.Keys(Views))
	}
	for _, in := range views {
		v := Views[in]
		b.Show(file, "", v)
		var wrong []string
		b.Ask(faults, &wrong)
		wrong = append(wrong, inspect(b.Picture(name+"-"+in), v.Dark, red == "")...)
		if red != "" {
			var there string
			b.Ask(fmt.Sprintf("location.hash = %q", red), &there)
			wrong = append(wrong, inspect(b.Picture(name+"-"+red+"-"+in), v.Dark, true)...)
		}
		for _, w := range wrong[:min(len(wrong), 5)] {
			b.t.Errorf("%s, %s: %s", name, in, w)
		}
	}
}

// Look reports what is wrong with the page that is open, as Check does, except for red bars.
func (b *Browser) Look(name string, v View) {
	b.t.Helper()
	var wrong []string
	b.Ask(faults, &wrong)
	wrong = append(wrong, inspect(b.Picture(name), v.Dark, false)...)
	for _, w := range wrong[:min(len(wrong), 5)] {
		b.t.Errorf("%s: %s", name, w)
	}
}

// inspect returns what is wrong with a picture of a page. It looks at every second line.
func inspect(p image.Image, dark, red bool) (wrong []string) {
	paper := grey(p.At(0, 0))
	if dark && paper > 80 || !dark && paper < 180 {
		wrong = append(wrong, fmt.Sprintf("the background has the brightness %d, dark: %v", paper, dark))
	}
	drawn, all := 0, 0
	tall, tallest := 0, 0 // lines below each other with a red bar
	for y := p.Bounds().Min.Y; y < p.Bounds().Max.Y; y += 2 {
		run, bar := 0, false // red pixels beside each other
		for x := p.Bounds().Min.X; x < p.Bounds().Max.X; x++ {
			c := color.RGBAModel.Convert(p.At(x, y)).(color.RGBA)
			all++
			if g := grey(c); max(g, paper)-min(g, paper) > 20 {
				drawn++
			}
			if c.R < 180 || c.G > 100 || c.B > 100 {
				run = 0
			} else if run++; run == 4 { // strokes of letters are thinner, or not tall
				bar = true
			}
		}
		if tall++; !bar {
			tall = 0
		}
		tallest = max(tallest, tall)
	}
	if drawn < all/200 {
		wrong = append(wrong, fmt.Sprintf("the screen is empty: %d of %d pixels are drawn", drawn, all))
	}
	if red && tallest < 8 {
		wrong = append(wrong, fmt.Sprintf("the screen shows no violation: a red bar has %d pixels at most", 2*tallest))
	}
	return wrong
}

func grey(c color.Color) uint8 { return color.GrayModel.Convert(c).(color.Gray).Y }
