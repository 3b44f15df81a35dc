// Search, pages and sliders of heat maps; without it all documents are shown as they were left.
(() => {
  const slide = (map) => {
    const known = JSON.parse(map.dataset.map);
    const spans = map.querySelectorAll(".fae-text .t");
    const [select, range] = map.querySelectorAll("select, input");
    const output = map.querySelector("output");
    const here = map.querySelector(".fae-here");
    const orders = known.orders.filter((order) => order[0].length);
    if (!orders.length) return;
    const show = () => {
      const [items, flip, flipLabel, changes, probabilities] = orders[select.value];
      const count = Number(range.value);
      const gone = new Set(items.slice(0, count));
      spans.forEach((span, place) => span.classList.toggle("gone", gone.has(place)));
      let label = flip > 0 && count >= flip ? flipLabel : known.label;
      for (const [from, then] of changes) if (from <= count) label = then;
      const sure = count < probabilities.length ? " " + probabilities[count].toFixed(3) : "";
      const share = Math.round((100 * count) / spans.length);
      output.textContent = `${count} of ${spans.length} erased (${share}\u00a0%): ${known.classes[label]}${sure}`
        + (label === known.label ? "" : ", changed");
      if (here) here.setAttribute("transform", `translate(${(here.dataset.width * count) / spans.length})`);
    };
    const choose = () => {
      const [items, flip] = orders[select.value];
      range.max = items.length;
      range.value = Math.max(flip, 0);
      show();
    };
    select.addEventListener("change", choose);
    range.addEventListener("input", show);
    select.closest("p").hidden = false;
    if (here) here.removeAttribute("display");
    choose();
  };
  const turn = (box) => {
    box.dataset.ready = "";
    const maps = [...box.querySelectorAll(".fae-map")];
    maps.forEach(slide);
    const size = Number(box.dataset.page);
    const find = box.querySelector(".fae-find");
    const words = maps.map((map) => map.querySelector(".fae-told").textContent + " " + map.querySelector(".fae-text").textContent)
      .map((text) => text.toLowerCase().replace(/\s+/g, " "));
    const [back, next] = find.querySelectorAll("button");
    const search = find.querySelector("input");
    let first = 0;
    const show = () => {
      const wanted = search.value.toLowerCase().trim().replace(/\s+/g, " ");
      const found = maps.filter((map, place) => words[place].includes(wanted));
      first = Math.max(0, Math.min(first, found.length - 1));
      first -= first % size;
      const shown = found.slice(first, first + size);
      maps.forEach((map) => { map.hidden = !shown.includes(map); });
      find.querySelector("output").textContent = found.length
        ? `${first + 1} to ${first + shown.length} of ${found.length}` : "nothing found";
      back.disabled = first === 0;
      next.disabled = first + size >= found.length;
    };
    search.addEventListener("input", () => { first = 0; show(); });
    back.addEventListener("click", () => { first -= size; show(); });
    next.addEventListener("click", () => { first += size; show(); });
    find.hidden = false;
    show();
  };
  document.querySelectorAll(".fae-maps:not([data-ready])").forEach(turn);
})();
