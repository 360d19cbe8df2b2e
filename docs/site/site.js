// For the pages and the reference: a switch of themes, which both remember; and tables that are wider than their column become
// a list of rows, each value after the name of its column.
"use strict";
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => localStorage.getItem("theme") || (system.matches ? "dark" : "light");
  const show = () => {
    const dark = theme() === "dark", root = document.documentElement.classList;
    root.toggle("dark-mode", dark), root.toggle("light-mode", !dark);  // the reference's style
    if (document.body) document.body.dataset.theme = theme();          // furo's
  };
  const other = () => {
    localStorage.setItem("theme", theme() === "dark" ? "light" : "dark");
    show();
  };
  document.documentElement.classList.remove("no-js");  // which hides furo's switch
  show();
  system.addEventListener("change", show);

  const tables = () => document.querySelectorAll("article table, .contents table.markdownTable, .contents table.doxtable");
  const name = table => {
    const heads = [...table.querySelectorAll("tr:first-child th")].map(cell => cell.innerText);
    for (const row of table.rows) [...row.cells].forEach((cell, i) => cell.dataset.column = heads[i] || "");
  };
  const fit = () => tables().forEach(table => {
    table.classList.remove("rows");
    table.classList.toggle("rows", table.scrollWidth > table.parentElement.clientWidth + 1);
  });
  addEventListener("DOMContentLoaded", () => {
    show();
    const buttons = [...document.querySelectorAll(".theme-toggle")];
    const area = document.getElementById("titlearea");
    if (buttons.length === 0 && area) {
      const button = document.createElement("button");
      button.className = "theme-toggle", button.textContent = "light / dark";
      area.prepend(button), buttons.push(button);
    }
    for (const button of buttons) button.title = "light or dark", button.addEventListener("click", other);
    tables().forEach(name);
    fit();
    let waits = 0;
    addEventListener("resize", () => (clearTimeout(waits), waits = setTimeout(fit, 100)));
  });
})();
