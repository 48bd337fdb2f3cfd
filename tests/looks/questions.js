// What a page is asked: each answer is a list of complaints in words, empty where nothing is wrong.
(() => {
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  const visible = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !e.closest("[inert]");
  const words = (text, most = 60) => { const one = text.replace(/\s+/g, " ").trim(); return one.length > most ? one.slice(0, most) + "..." : one; };
  const called = (e) => {
    const name = e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + (e.getAttribute("class") ? "." + e.getAttribute("class").trim().split(/\s+/).join(".") : "");
    return `<${name}> "${words(e.textContent || e.getAttribute("alt") || e.getAttribute("aria-label") || "", 40)}"`;
  };
  const style = (e, pseudo) => getComputedStyle(e, pseudo);
  const drawn = (e) => { const box = e.getBoundingClientRect(); return box.width > 0.5 && box.height > 0.5; };
  const FOCUSABLE = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
  const focusable = (e) => e.matches(FOCUSABLE) && e.tabIndex >= 0 && !e.disabled;

  // Text, with the boxes of its lines.
  function* texts() {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (!node.data.trim() || parent.closest("script, style, noscript, template, title, option") || !visible(parent)) continue;
      yield [node, parent];
    }
  }
  const lines = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return Array.from(range.getClientRects());
  };
  const unseen = (box) => box.right <= 1 || box.bottom + scrollY <= 1; // moved out of the page on purpose: a link to skip to the text, a closed drawer
  const tiny = (e) => e.clientWidth <= 1 || e.clientHeight <= 1; // hidden from sight and kept for readers of the screen
  const clipping = (e, stop) => {
    for (let up = e; up && up !== stop; up = up.parentElement) if (style(up).overflowX !== "visible") return up;
    return null;
  };

  function overflow(scrolling = true) {
    const said = new Set(), width = document.documentElement.clientWidth, root = document.scrollingElement;
    if (root.scrollWidth > width) said.add(`the page is ${root.scrollWidth} px wide in a window of ${width}`);
    for (const e of all("body *")) {
      if (e.closest("svg svg, svg *, math *") || !visible(e) || !drawn(e)) continue;
      const box = e.getBoundingClientRect();
      if ((box.right > width + 1 || box.left < -1) && !unseen(box)) {
        const clip = clipping(e.parentElement, document.body);
        if (!clip) said.add(`${called(e)} reaches from ${Math.round(box.left)} to ${Math.round(box.right)} px in a window of ${width}`);
      }
      const across = style(e).overflowX;
      if (e.closest(".md-header")) continue; // the theme repeats the title of the page there, shortened
      if (unseen(box) || e === document.body || across === "visible" || e.scrollWidth <= e.clientWidth + 1 || tiny(e)) continue;
      if (across === "auto" || across === "scroll") {
        if (!scrolling) said.add(`${called(e)} would have to be scrolled: ${e.scrollWidth} px in ${e.clientWidth}`);
        else if (!focusable(e) && !all(FOCUSABLE, e).some((inner) => focusable(inner) && visible(inner)))
          said.add(`${called(e)} scrolls sideways, and the keyboard does not reach it`);
      } else if (e.innerText && e.innerText.trim()) said.add(`${called(e)} is cut: ${e.scrollWidth} px in ${e.clientWidth}`);
    }
    for (const [node, parent] of texts()) {
      if (parent.closest("svg, math")) continue;
      let block = parent;
      while (["inline", "contents"].includes(style(block).display)) block = block.parentElement;
      if (clipping(block, block.parentElement) || tiny(block)) continue;
      const frame = block.getBoundingClientRect();
      if (unseen(frame)) continue;
      if (lines(node).some((line) => line.width && (line.right > frame.right + 1.5 || line.left < frame.left - 1.5)))
        said.add(`"${words(node.data, 40)}" runs out of its ${called(block)}`);
    }
    for (const e of all("math")) {
      const right = Math.max(...all("*", e).map((part) => part.getBoundingClientRect().right)), around = e.parentElement.closest("td, th, p, li, dd, div, section, article, main, body");
      if (visible(e) && right > around.getBoundingClientRect().right + 1.5 && !clipping(e, around.parentElement)) said.add(`the formula "${words(e.textContent, 40)}" runs out of its ${called(around)}`);
    }
    return [...said];
  }

  function sizes(smallest, small) {
    const found = new Map();
    for (const [node, parent] of texts()) {
      if (parent.closest("math")) continue; // scripts of scripts; the formula itself is below
      let size = parseFloat(style(parent).fontSize), least = parent.closest("sup, sub") ? small : smallest;
      if (parent instanceof SVGElement) {
        const m = parent.getScreenCTM();
        if (!m || !lines(node).some((line) => line.width)) continue;
        [size, least] = [size * Math.hypot(m.a, m.b), small];
      }
      if (size >= least - 0.01) continue;
      const key = `${parent.tagName}|${parent.getAttribute("class")}|${size.toFixed(1)}`;
      found.set(key, [...(found.get(key) || []), `${called(parent)} is written at ${size.toFixed(1)} px, and ${least} would be the least`]);
    }
    const said = [...found.values()].map((same) => same[0] + (same.length > 1 ? `; so are ${same.length - 1} more` : ""));
    for (const e of all("math")) if (visible(e) && parseFloat(style(e).fontSize) < smallest - 0.01) said.push(`the formula ${called(e)} is set at ${style(e).fontSize}`);
    return said;
  }

  // Pictures: what is needed to judge them. The source is read by the caller.
  function pictures() {
    return all("img").filter((e) => visible(e)).map((e) => {
      const box = e.getBoundingClientRect(), link = e.closest("a[href]"), clip = clipping(e.parentElement, document.body);
      return {
        source: e.currentSrc, alternative: e.getAttribute("alt"), decoration: e.getAttribute("role") === "presentation", broken: !e.naturalWidth,
        width: box.width, natural: e.naturalWidth, linked: !!link, scrolls: !!clip && clip.scrollWidth > clip.clientWidth + 1,
      };
    });
  }

  function motion() {
    const said = new Set(), moving = (times) => times.split(",").some((time) => parseFloat(time) * (time.trim().endsWith("ms") ? 1 : 1000) > 20);
    if (style(document.documentElement).scrollBehavior === "smooth") said.add("the page scrolls smoothly");
    for (const e of all("html, body, body *")) {
      for (const pseudo of [undefined, "::before", "::after"]) {
        const now = style(e, pseudo);
        if (pseudo && now.content === "none") continue;
        if (moving(now.transitionDuration)) said.add(`${e.tagName.toLowerCase()}.${e.getAttribute("class") || ""}${pseudo || ""} has a transition of ${now.transitionDuration}`);
        if (now.animationName !== "none" && moving(now.animationDuration)) said.add(`${called(e)} is animated: ${now.animationName}`);
      }
    }
    return [...said];
  }

  // The keyboard: what must be reached is noted, then Tab is pressed by the caller, then what was not reached, or did not show it, is told.
  const LOOK = ["outlineStyle", "outlineWidth", "outlineColor", "boxShadow", "backgroundColor", "borderColor", "borderWidth", "textDecorationLine", "textDecorationColor", "color", "opacity", "fill"];
  const look = (e) => {
    const one = style(e), ring = one.outlineStyle === "none" || parseFloat(one.outlineWidth) === 0 ? "none" : `${one.outlineStyle} ${one.outlineWidth} ${one.outlineColor}`;
    return [ring, ...LOOK.slice(3).map((key) => one[key]), ring === "none" ? "" : one.outlineOffset].join("|");
  };
  // A control may show its focus on what stands for it: the label of a box that is not drawn.
  const faces = (e) => [e, ...(e.labels || []), ...(e.closest("label, summary") ? [e.closest("label, summary")] : [])];
  const looks = (e) => faces(e).map(look).join("#");
  let before, reached, faint, away;
  function walk() {
    document.activeElement?.blur();
    scrollTo(0, 0);
    before = new Map(), reached = new Set(), faint = [], away = [];
    // Of a group of radio buttons the keyboard reaches the one that is chosen, or else the first.
    const group = (e, chosen) => document.querySelector(`input[type=radio][name="${CSS.escape(e.name)}"]${chosen}`);
    const other = (e) => e.type === "radio" && !e.checked && (group(e, ":checked") || group(e, "") !== e);
    const passing = (e) => e.matches(".md-top"); // the theme shows it only while somebody scrolls up
    const wanted = all(FOCUSABLE).filter((e) => focusable(e) && !other(e) && !passing(e) && e.checkVisibility({ visibilityProperty: true }) && (drawn(e) || faces(e).some(drawn)));
    for (const e of wanted) before.set(e, looks(e));
    document.addEventListener("focusin", (event) => {
      if (reached.has(event.target)) return;
      reached.add(event.target);
      if (before.has(event.target) && before.get(event.target) === looks(event.target)) faint.push(event.target);
      if (faces(event.target).map((e) => e.getBoundingClientRect()).every((box) => box.right <= 0 || box.left >= innerWidth)) away.push(event.target);
    });
    return wanted.length;
  }
  const walked = () => reached.size;
  function unreached() {
    const said = [...before.keys()].filter((e) => !reached.has(e) && e.isConnected && e.checkVisibility({ visibilityProperty: true })).map((e) => `the keyboard does not reach ${called(e)}`);
    said.push(...faint.map((e) => `${called(e)} does not show that it has the focus`));
    return [...said, ...away.map((e) => `${called(e)} has the focus out of sight`)];
  }

  // One element for each look of text: its contrast is that of all which look alike.
  function representatives() {
    const found = new Map();
    for (const [, parent] of texts()) {
      if (parent instanceof SVGElement) continue;
      const one = style(parent), ground = [];
      for (let up = parent; up; up = up.parentElement) {
        const now = style(up);
        if (now.opacity !== "1" || now.filter !== "none" || now.mixBlendMode !== "normal") ground.push(now.opacity, now.filter, now.mixBlendMode);
        if (now.backgroundColor !== "rgba(0, 0, 0, 0)" || now.backgroundImage !== "none") {
          ground.push(now.backgroundColor, now.backgroundImage);
          if (!/rgba|\//.test(now.backgroundColor)) break;
        }
      }
      const box = parent.getBoundingClientRect();
      const key = [one.color, one.fontSize, one.fontWeight, one.textShadow, parent.matches("a") && one.textDecorationLine, ...ground, box.width > 1].join("|");
      if (!found.has(key)) found.set(key, parent);
    }
    return [...found.values()];
  }

  // Contrast of the words of a drawing against the card that it stands on: axe leaves SVG out.
  function drawings(least) {
    const said = new Set();
    const rgb = (text) => {
      const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const seen = new Map();
    for (const [, parent] of texts()) {
      if (!(parent instanceof SVGElement)) continue;
      let up = parent;
      while (up && rgb(style(up).backgroundColor)[3] < 255) up = up.parentElement;
      const key = style(parent).fill + "|" + (up ? style(up).backgroundColor : "rgb(255, 255, 255)");
      if (!seen.has(key)) {
        const [a, b] = key.split("|").map((text) => light(rgb(text)));
        seen.set(key, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
      }
      if (seen.get(key) < least) said.add(`${called(parent)} has a contrast of ${seen.get(key).toFixed(2)}, and ${least} would be the least`);
    }
    return [...said];
  }

  return { overflow, sizes, pictures, motion, walk, walked, unreached, representatives, drawings };
})()
