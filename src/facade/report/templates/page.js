// Draws every chart, in the reader's colours; again when those change.
(function () {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const specs = read("specs"), configs = read("configs");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  async function draw() {
    const config = configs[dark.matches ? "dark" : "light"];
    const actions = { export: true, source: false, compiled: false, editor: false };
    let drawn = 0;
    for (const place of document.querySelectorAll(".chart")) {
      const spec = specs[Number(place.dataset.spec)];
      await vegaEmbed(place, spec, { mode: "vega-lite", renderer: "svg", actions, config });
      drawn += 1;
    }
    document.documentElement.dataset.drawn = String(drawn);
  }
  dark.addEventListener("change", draw);
  draw();
})();
