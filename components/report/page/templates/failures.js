(function () {
  var source = document.getElementById("failure-data");
  if (!source) return;
  var data = JSON.parse(source.textContent), form = document.getElementById("failure-controls");
  var list = document.getElementById("failure-list"), more = document.getElementById("failure-more");
  var step = 10, limit = step;

  /* AO of two lists: the mean over all depths of the share that both have (ParaCLIP, appendix B, equation 1). */
  function overlap(a, b) {
    var first = new Set(), second = new Set(), shared = 0, sum = 0;
    a.forEach(function (image, place) {
      first.add(image);
      if (second.has(image)) shared += 1;
      second.add(b[place]);
      if (first.has(b[place])) shared += 1;
      sum += shared / (place + 1);
    });
    return sum / a.length;
  }

  function make(tag, name, text) {
    var made = document.createElement(tag);
    if (name) made.className = name;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function picture(row, name, said) {
    var image = make("img", name);
    image.dataset.picture = row;
    image.alt = said + ": " + pictures[row][1];
    image.title = pictures[row][1];
    return image;
  }

  function found(number) {
    var chosen = form.elements.encoder.value, against = form.elements.against.value;
    var a = data.lists[chosen].query[number];
    var b = against ? data.lists[against].query[number] : data.lists[chosen].paraphrase[number];
    var place = (against ? a : b).indexOf(data.queries[number].gold);
    return { number: number, query: data.queries[number], a: a, b: b, overlap: overlap(a, b), place: place < 0 ? a.length : place };
  }

  var orders = {
    worst: function (x, y) { return x.overlap - y.overlap; },
    best: function (x, y) { return y.overlap - x.overlap; },
    rank: function (x, y) { return y.place - x.place || x.overlap - y.overlap; },
    text: function (x, y) { return x.query.query.localeCompare(y.query.query); }
  };

  function row(label, images, others, gold) {
    var line = make("div", "row named");
    line.append(make("b", "", label));
    images.slice(0, data.top).forEach(function (image, place) {
      var shared = others.slice(0, data.top).includes(image), names = [];
      if (shared) names.push("shared");
      if (image === gold) names.push("gold");
      var said = label + ", rank " + (place + 1) + (image === gold ? ", described image" : "") + (shared ? ", in both lists" : "");
      line.append(picture(image, names.join(" "), said));
    });
    return line;
  }

  function item(entry) {
    var chosen = form.elements.encoder.value, against = form.elements.against.value;
    var box = make("article", "failure"), ask = make("div", "ask"), words = make("div");
    [["A", entry.query.query], ["B", entry.query.paraphrase]].forEach(function (pair) {
      var line = make("p");
      line.append(make("b", "", pair[0]), " " + pair[1]);
      words.append(line);
    });
    words.append(make("p", "muted", "words: " + entry.query.tier + " · AO@" + entry.a.length + " " + (100 * entry.overlap).toFixed(1)));
    ask.append(picture(entry.query.gold, "gold", "Described image"), words);
    box.append(ask);
    box.append(row(against ? chosen : "A", entry.a, entry.b, entry.query.gold));
    box.append(row(against ? against : "B", entry.b, entry.a, entry.query.gold));
    return box;
  }

  function show() {
    var words = form.elements.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    var matching = data.queries.map(function (_query, number) { return number; }).filter(function (number) {
      var query = data.queries[number], text = (query.query + " " + query.paraphrase + " " + query.tier).toLowerCase();
      return words.every(function (word) { return text.includes(word); });
    });
    var entries = matching.map(found).sort(orders[form.elements.order.value]);
    list.replaceChildren.apply(list, entries.slice(0, limit).map(item));
    givePictures(list);
    document.getElementById("failure-count").textContent =
      entries.length ? Math.min(limit, entries.length) + " of " + entries.length + " queries" : "No query has these words.";
    more.hidden = limit >= entries.length;
  }

  form.addEventListener("input", function () { limit = step; show(); });
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  more.addEventListener("click", function () { limit += step; show(); });
  show();
})();
