(function () {
  document.querySelectorAll(".chooser").forEach(function (chooser) {
    var plot = document.getElementById(chooser.dataset.plot);
    var select = chooser.querySelector("select");
    var chips = Array.from(chooser.querySelectorAll(".chip"));
    function show() {
      var shown = new Set();
      chips.forEach(function (chip) {
        if (chip.getAttribute("aria-pressed") === "true") shown.add(chip.dataset.encoder);
      });
      var visible = plot.data.map(function (trace) {
        var chosen = !select || trace.meta.choice === select.value;
        return chosen && shown.has(trace.meta.encoder);
      });
      Plotly.restyle(plot, { visible: visible });
    }
    chips.forEach(function (chip) {
      chip.addEventListener("click", function () {
        chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
        show();
      });
    });
    if (select) select.addEventListener("change", show);
  });
})();
