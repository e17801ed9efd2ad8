"use strict";
// The list keeps the reports that have all of the words, and the headings above them.
document.addEventListener("DOMContentLoaded", () => {
  const input = document.querySelector("[type=search]"), count = document.querySelector("output");
  const items = [...document.querySelectorAll("li[data-group]")];
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase().split(/\s+/);
    for (const item of items) item.hidden = !wanted.every(word => item.textContent.toLowerCase().includes(word));
    for (const section of document.querySelectorAll("main section"))
      section.hidden = !section.querySelector("li[data-group]:not([hidden])") && input.value.trim() !== "";
    for (const list of document.querySelectorAll("section > ul"))
      if (list.previousElementSibling?.tagName === "H3")
        list.previousElementSibling.hidden = !list.querySelector("li:not([hidden])");
    count.value = input.value.trim() ? `${items.filter(item => !item.hidden).length} of ${items.length}` : "";
  });
});
