(function () {
  function paint() {
    var style = getComputedStyle(document.documentElement);
    var ink = style.getPropertyValue("--ink").trim(), line = style.getPropertyValue("--line").trim();
    document.querySelectorAll(".js-plotly-plot").forEach(function (plot) {
      Plotly.relayout(plot, {
        "font.color": ink, "xaxis.gridcolor": line, "xaxis.zerolinecolor": line, "yaxis.gridcolor": "rgba(0,0,0,0)"
      });
      Plotly.restyle(plot, { "error_x.color": ink });
    });
  }
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
})();
