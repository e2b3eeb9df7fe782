// What can be done with the result of a run: its figures, files, a layer of the store, its command.

import { make } from "./panel.js";

const FORMS = { tif: "COG", gpkg: "GeoPackage", geojson: "GeoJSON" };

// Fill `place`. `facts`: pairs of texts. `does`: {write(form), keep(name), tell(text)}.
export function showResult(place, run, facts, does) {
  const list = make("dl", {}, ...facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  const forms = { ...FORMS, ...(run.barriers.length ? { barriers: "Barriers" } : {}) };
  const button = (title, work) => {
    const made = make("button", { type: "button" }, title);
    made.addEventListener("click", async () => {
      made.disabled = true;
      try {
        await work();
      } catch (error) {
        does.tell(error.message);
      }
      made.disabled = false;
    });
    return made;
  };
  const files = Object.entries(forms).map(([form, title]) => button(title, () => does.write(form)));
  const name = make("input", { ariaLabel: "Name of the new layer", placeholder: "name", required: true,
    pattern: "[A-Za-z][A-Za-z0-9_]*", autocomplete: "off", id: "layer-name" });
  const keep = make("form", { className: "line" }, name, make("button", {}, "Keep as a layer"));
  keep.hidden = run.factor > 1;
  keep.addEventListener("submit", (event) => {
    event.preventDefault();
    does.keep(name.value).catch((error) => does.tell(error.message));
  });
  const command = make("code", { tabIndex: 0 }, run.command);
  const copy = button("Copy", () => navigator.clipboard.writeText(run.command));
  place.replaceChildren(
    make("h2", {}, "Result"), list, make("p", { className: "quiet" }, "Download"),
    make("div", { className: "buttons", role: "group", ariaLabel: "Download" }, ...files), keep,
    make("details", {}, make("summary", {}, "Command line"), command, copy),
  );
  place.hidden = false;
}
