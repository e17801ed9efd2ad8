"use strict";
// Figures that answer: as the reader scrolls to one, Vega draws its rows in the place of the picture, which print and a
// reader without scripts keep, and so does everyone if the drawing library is not next to the page.
document.addEventListener("DOMContentLoaded", () => {
  const FEW = 3; // lines, whose bands can be distinguished; of more, the band of the one under the pointer is shown
  const LABEL = 150, ROW = 17, LINE = 13; // pixels of a row's name at least, of a row, of each further line of its name
  const LETTER = 6.3; // pixels, of the drawing's 12
  const { script, figures } = JSON.parse(document.getElementById("figures").textContent);
  const made = (name, properties, ...inside) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...inside);
    return element;
  };

  const wrap = (text, room) => // lines of words, each as wide as `room` in pixels has letters for
    text.match(new RegExp(`.{1,${Math.max(1, Math.floor(room / LETTER))}}(\\s|$)|\\S+\\s?`, "g")).map(line => line.trim());

  // Axes' titles, and the names of rows, in as many lines as they need; rows are then as high.
  const fitted = (spec, words, width) => {
    const { x, y } = spec.encoding, named = y.type === "nominal", room = Math.max(LABEL, width * 0.3);
    const title = typeof x.axis.title === "string" ? wrap(x.axis.title, width * 0.9) : x.axis.title;
    const names = named ? Object.fromEntries(words.map(name => [name, wrap(name, room)])) : {};
    const most = Math.max(1, ...Object.values(names).map(lines => lines.length));
    const lines = "length(names[datum.label])"; // of which the first, not the middle, would stand at the row
    const labelOffset = { condition: { test: `${lines} > 1`, expr: `${-LINE / 2} * (${lines} - 1)` }, value: 0 };
    const labelled = { ...y.axis, labelExpr: "names[datum.label]", labelLimit: 0, labelOffset };
    const params = spec.params.map(param => !param.name.startsWith("said_") ? param : { ...param, value:
      Object.fromEntries(Object.entries(param.value).map(([key, said]) => [key, wrap(said, width * 0.9)])) });
    return {
      ...spec, width, height: spec.height * (ROW + LINE * (most - 1)) / ROW,
      config: { ...spec.config, axisX: { titleAnchor: "end" } },
      params: [...params, { name: "names", value: names }],
      encoding: { ...spec.encoding, x: { ...x, axis: { ...x.axis, title } }, y: named ? { ...y, axis: labelled } : y },
    };
  };

  let library;
  const load = () => library ??= new Promise((loaded, failed) =>
    document.head.append(made("script", { src: script, onload: loaded, onerror: failed })));

  // Columns to rows; a column of words is a list of the different ones and the place of each row's.
  const rowsOf = columns => {
    const whole = Object.entries(columns).map(([name, column]) =>
      [name, column.words ? column.at.map(place => column.words[place]) : column]);
    return whole[0][1].map((_, row) => Object.fromEntries(whole.map(([name, column]) => [name, column[row]])));
  };

  const choice = (name, options, resize, view) => {
    if (options.every(([, label]) => /^\d+%$/.test(label))) { // shares stand on a scale
      const range = made("input", { type: "range", name, min: 0, max: options.length - 1, value: 0 });
      const said = made("output", {}, options[0][1]);
      range.addEventListener("input", () => {
        const [value, label] = options[range.value];
        said.value = label;
        view.signal(`pick_${name}`, value).runAsync();
      });
      return made("label", {}, `${name} `, range, said);
    }
    const select = made("select", { name }, ...options.map(([value, label]) => made("option", { value }, label)));
    select.addEventListener("change", () => {
      if (name === "group") resize(select.value); // fewer rows are as high each
      view.signal(`pick_${name}`, select.value).runAsync();
    });
    return made("label", {}, `${name} `, select);
  };

  // A button for each line that is shown, which leaves it out, and a list of those that can be added.
  const chips = (lines, palette, colours, view) => {
    const list = made("span", { className: "chips" }), add = made("select", { ariaLabel: "add a line" });
    const show = next => {
      colours = next;
      view.signal("colours", colours).signal("few", Object.keys(colours).length <= FEW).runAsync();
      list_them();
    };
    const list_them = () => {
      list.replaceChildren(...lines.filter(({ name }) => colours[name]).map(({ name }) => {
        const swatch = made("i", {});
        swatch.style.background = colours[name];
        const chip = made("button", { type: "button", title: "leave out" }, swatch, name);
        chip.addEventListener("click", () => {
          const place = [...list.children].indexOf(chip); // the list is made anew: the focus goes on to the next of it
          show(Object.fromEntries(Object.entries(colours).filter(([other]) => other !== name)));
          (list.children[place] ?? add).focus();
        });
        return chip;
      }));
      const groups = new Map();
      for (const { name, group } of lines) if (!colours[name]) groups.set(group, [...(groups.get(group) ?? []), name]);
      add.replaceChildren(made("option", { value: "" }, "add …"), ...[...groups].map(([label, names]) =>
        made("optgroup", { label }, ...names.map(name => made("option", { value: name }, name)))));
      add.hidden = groups.size === 0;
    };
    add.addEventListener("change", () => {
      const used = Object.values(colours), count = colour => used.filter(other => other === colour).length;
      const colour = palette.reduce((best, one) => count(one) < count(best) ? one : best);
      if (add.value) show({ ...colours, [add.value]: colour });
    });
    list_them();
    return made("div", { className: "lines" }, list, add);
  };

  const draw = async (figure, { title, note, spec, columns, choices, heights, lines, palette }) => {
    const plot = made("div", { className: "plot", role: "img", ariaLabel: figure.querySelector("img").alt });
    const tools = made("div", { className: "tools" });
    const drawing = made("div", { className: "drawing" }, made("p", { className: "title" }, title), tools, plot);
    figure.querySelector("figcaption").before(drawing);
    const sized = { ...fitted(spec, columns.line.words, plot.clientWidth), datasets: { rows: rowsOf(columns) } };
    const { view } = await vegaEmbed(plot, sized, {
      mode: "vega-lite", ast: true, actions: false, renderer: "svg", defaultStyle: false,
      tooltip: { disableDefaultStyle: true },
    });
    new ResizeObserver(() => plot.clientWidth && view.width(plot.clientWidth).runAsync()).observe(plot);
    for (const [name, options] of Object.entries(choices)) {
      tools.append(options.length > 1 ? choice(name, options, rows => view.height(heights[rows] * sized.height / spec.height), view) : options[0][1]);
    }
    if (note) drawing.append(made("p", { className: "note" }, note));
    if (lines) drawing.append(chips(lines, palette, view.signal("colours"), view));
    figure.classList.add("answers");
  };

  const seen = new IntersectionObserver(entries => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      load().then(() => draw(target, figures[target.id])).catch(error => {
        target.querySelector(".drawing")?.remove();
        if (error instanceof Error) console.error(error);
      });
    }
  }, { rootMargin: "300px" });
  for (const id of Object.keys(figures)) seen.observe(document.getElementById(id));
});
