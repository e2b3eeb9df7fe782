// The profile of a least-cost path, as SVG.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

export function time(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (minutes < 2880) return minutes % 60 ? `${hours} h ${String(minutes % 60).padStart(2, "0")}` : `${hours} h`;
  return `${(minutes / 1440).toFixed(1)} days`;
}

export function number(value, digits = 5) {
  return Number(value).toLocaleString("en", { maximumSignificantDigits: digits });
}

export function withUnits(value, units) {
  if (units === "s") return time(Number(value));
  return units ? `${number(value)} ${units}` : number(value);
}

// Round numbers from low to high, at least about `count`.
function ticks(low, high, count) {
  const about = (high - low) / count || 1, tens = 10 ** Math.floor(Math.log10(about));
  const step = tens * [5, 2, 1].find((one) => one * tens <= about * 1.001);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high; ++k) found.push(k * step);
  return found;
}

// path: what the server tells of a path. known: a title, or the units of its cost; units of
// heights; whether lengths are metres. show: called with a position on the path, or null.
export function draw(figure, path, known, show) {
  const points = path.profile.map(([at, height], k) => [at, height, path.places[k]])
    .filter(([, height]) => height !== null);
  figure.replaceChildren();
  figure.hidden = points.length < 2;
  if (figure.hidden) return;
  const long = known.metres && path.length >= 2000, part = long ? 1000 : 1;
  const length = (value) => `${number(value / part, 3)}${long ? " km" : known.metres ? " m" : ""}`;
  const height = (value) => withUnits(value, known.heights);
  const values = points.map(([, one]) => one);
  const low = Math.min(...values), high = Math.max(...values), far = points.at(-1)[0] || 1;
  const caption = document.createElement("figcaption");
  caption.textContent = `${known.title ?? withUnits(path.cost, known.units)} over ${length(path.length)}, `
    + `climb ${height(path.climb)}, descent ${height(path.descent)}, heights ${number(low)} to ${height(high)}`;
  const svg = element("svg", { tabindex: 0, role: "img", "aria-label": caption.textContent });
  figure.append(caption, svg);
  const { width, height: tall } = svg.getBoundingClientRect();
  const [left, bottom] = [46, 18];
  svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
  const x = (at) => left + ((width - left - 4) * at) / far;
  const y = (one) => tall - bottom - 4 - ((tall - bottom - 10) * (one - low)) / (high - low || 1);
  for (const one of ticks(low, high, Math.max(2, Math.floor(tall / 45)))) {
    svg.append(element("path", { class: "rule", d: `M${left},${y(one)}H${width}` }),
      element("text", { x: left - 6, y: y(one) + 4, "text-anchor": "end" }, number(one)));
  }
  for (const one of ticks(0, far / part, Math.max(2, Math.floor(width / 160)))) {
    const at = x(one * part), anchor = at > width - 30 ? "end" : "middle";
    svg.append(element("text", { x: at, y: tall - 3, "text-anchor": anchor }, length(one * part)));
  }
  const line = points.map(([at, one]) => `${x(at).toFixed(1)},${y(one).toFixed(1)}`).join("L");
  const cursor = element("path", { class: "cursor" }), label = element("text", { class: "cursor", y: 10 });
  svg.append(
    element("path", { class: "ground", d: `M${x(points[0][0])},${tall - bottom}L${line}V${tall - bottom}Z` }),
    element("path", { class: "top", d: `M${line}` }), cursor, label,
  );
  let chosen = -1;
  const choose = (k) => {
    chosen = k;
    const [at, one, place] = points[k] ?? [];
    cursor.setAttribute("d", place ? `M${x(at)},0V${tall - bottom}` : "");
    label.textContent = place ? `${length(at)}, ${height(one)}` : "";
    label.setAttribute("x", place ? x(at) + (x(at) > width / 2 ? -5 : 5) : 0);
    label.setAttribute("text-anchor", x(at) > width / 2 ? "end" : "start");
    show(place ?? null);
  };
  svg.addEventListener("pointermove", (event) => {
    const at = ((event.clientX - svg.getBoundingClientRect().left - left) / (width - left - 4)) * far;
    const away = points.map(([one]) => Math.abs(one - at));
    choose(away.indexOf(Math.min(...away)));
  });
  svg.addEventListener("pointerleave", () => choose(-1));
  svg.addEventListener("blur", () => choose(-1));
  svg.addEventListener("keydown", ({ key }) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
    if (step) choose(Math.min(points.length - 1, Math.max(0, chosen + step)));
  });
}
