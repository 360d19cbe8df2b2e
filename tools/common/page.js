"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
/// An element with attributes and children; a string becomes text, never HTML.
function make(name, attributes, ...children) {
  const inSvg = ["svg", "g", "line", "rect", "circle", "path", "text", "tspan", "title"].includes(name);
  const made = inSvg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}
const at = (id) => document.getElementById(id);
