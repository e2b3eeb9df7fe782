// The list of layers, with opacity and legends.

import { number, withUnits } from "./profile.js";

export function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function colour([red, green, blue]) {
  return `rgb(${red} ${green} ${blue})`;
}

export function legend(told) {
  const parts = [];
  if (told.kind === "classes") {
    const some = told.classes.map(([value, rgb]) => {
      const mark = make("i");
      mark.style.background = colour(rgb);
      return make("span", {}, mark, value);
    });
    parts.push(make("div", { className: "classes" }, ...some));
    if (told.text) parts.push(make("p", { className: "quiet" }, told.text));
  } else {
    const ramp = make("div", { className: "ramp", role: "img", ariaLabel: "Colours from low to high" });
    ramp.style.background = `linear-gradient(90deg, ${told.colours.map(colour).join(", ")})`;
    const middle = told.log ? "logarithmic" : told.units === "s" ? "" : told.units || "";
    parts.push(ramp, make("div", { className: "ends" },
      make("span", {}, withUnits(told.low, told.units === "s" ? "s" : "")),
      make("b", {}, middle),
      make("span", {}, withUnits(told.high, told.units === "s" ? "s" : ""))));
  }
  const facts = [];
  if (told.min !== null && told.min !== undefined && told.kind !== "classes") {
    const units = told.units ? ` ${told.units}` : "";
    facts.push(told.units === "s"
      ? `all: ${withUnits(told.min, "s")} to ${withUnits(told.max, "s")}`
      : `all: ${number(told.min)} to ${number(told.max)}${units}`);
  }
  if (told.lines) facts.push(`a line every ${withUnits(told.interval, told.units)}`);
  if (!told.overviews) facts.push("coarse from afar: build overviews");
  if (facts.length) parts.push(make("p", { className: "quiet" }, facts.join("; ")));
  return parts;
}

// One row of the list. `row`: {id, title, shown, opacity}; `changed` is called after a change,
// `told`, if not null, gives the legend, and `failed` receives the error if it cannot.
export function layerRow(row, changed, told, failed) {
  const check = make("input", { type: "checkbox", checked: row.shown, id: `layer-${row.id}` });
  const below = make("div", { className: "shown", hidden: !row.shown });
  const range = make("input", {
    type: "range", min: 0, max: 1, step: 0.05, value: row.opacity,
    ariaLabel: `Opacity of ${row.title}`, id: `opacity-${row.id}`,
  });
  const place = make("div");
  below.append(range, place);
  const fill = async () => {
    if (!told || !row.shown || place.hasChildNodes()) return;
    try {
      place.replaceChildren(...legend(await told()));
    } catch (error) {
      failed(error);
    }
  };
  check.addEventListener("change", () => {
    row.shown = check.checked;
    below.hidden = !row.shown;
    changed(row);
    fill();
  });
  range.addEventListener("input", () => {
    row.opacity = Number(range.value);
    changed(row);
  });
  fill();
  return make("li", {}, make("label", {}, check, make("span", {}, row.title)), below);
}
