(function () {
  function paint() {
    var style = getComputedStyle(document.documentElement);
    var ink = style.getPropertyValue("--ink").trim(), line = style.getPropertyValue("--line").trim();
    document.querySelectorAll(".js-plotly-plot").forEach(function (plot) {
      var change = { "font.color": ink };
      change["xaxis.gridcolor"] = change["xaxis.zerolinecolor"] = change["yaxis.zerolinecolor"] = line;
      change["yaxis.gridcolor"] = line;
      Plotly.relayout(plot, change);
      plot.data.forEach(function (trace, number) {
        if (trace.error_x) Plotly.restyle(plot, { "error_x.color": ink }, [number]);
        if (trace.error_y) Plotly.restyle(plot, { "error_y.color": ink }, [number]);
      });
    });
  }
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
})();
