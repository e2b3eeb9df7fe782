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

export function number(value) {
  return Number(value).toLocaleString("en", { maximumSignificantDigits: 5 });
}

export function withUnits(value, units) {
  if (units === "s") return time(Number(value));
  return units ? `${number(value)} ${units}` : number(value);
}

// path: what the server tells of a path; known: a title or the units of its cost, whether lengths
// are metres.
export function draw(figure, path, known) {
  const points = path.profile.filter(([, height]) => height !== null);
  figure.replaceChildren();
  figure.hidden = points.length < 2;
  if (figure.hidden) return;
  const heights = points.map(([, height]) => height);
  const low = Math.min(...heights), high = Math.max(...heights);
  const far = points.at(-1)[0] || 1;
  const x = (at) => (1000 * at) / far;
  const y = (height) => 100 - (96 * (height - low)) / (high - low || 1);
  const line = points.map(([at, height]) => `${x(at).toFixed(1)},${y(height).toFixed(1)}`).join("L");
  const svg = element("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(
    element("path", { class: "ground", d: `M0,100L${line}L1000,100Z` }),
    element("path", { class: "top", d: `M${line}` }),
  );
  const caption = document.createElement("figcaption");
  const length = known.metres && path.length >= 1000
    ? `${number(path.length / 1000)} km` : withUnits(path.length, known.metres ? "m" : "");
  caption.textContent = `${known.title ?? withUnits(path.cost, known.units)} over ${length}, `
    + `heights ${number(low)} to ${number(high)}`;
  figure.append(caption, svg);
}
