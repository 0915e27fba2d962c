// Open the same page of another version, if the site has several.
"use strict";

(() => {
  const base = new URL(JSON.parse(document.getElementById("__config").textContent).base + "/", location.href);
  const own = decodeURIComponent(base.pathname.split("/").at(-2));
  const list = document.createElement("script");
  list.src = new URL("../versions.js", base).href;
  list.addEventListener("load", () => {
    const versions = window.siteVersions || [];
    const place = document.querySelector(".md-header__title");
    if (versions.length < 2 || !place) return;
    const choice = document.createElement("select");
    choice.className = "version-switch";
    choice.setAttribute("aria-label", "Version of these pages");
    for (const { version } of versions) choice.add(new Option(version, version, false, version === own));
    choice.addEventListener("change", () => {
      const page = decodeURIComponent(location.pathname.slice(base.pathname.length)) || "index.html";
      const wanted = versions.find(({ version }) => version === choice.value);
      const there = wanted.pages.includes(page) ? page : "index.html";
      location.href = new URL(`../${encodeURIComponent(wanted.version)}/${there}`, base).href;
    });
    place.after(choice);
  });
  document.head.append(list);
})();
