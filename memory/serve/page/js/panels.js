// Tabs: arrow keys move between them, as people who use a keyboard expect.

const tabs = [...document.querySelectorAll("[role=tab]")];

/** Show the panel of a tab; `shown` is called with its name. */
export function choosePanel(name) {
  for (const tab of tabs) {
    const chosen = tab.getAttribute("aria-controls") === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
}

/** Let the tabs work. */
export function startPanels(shown) {
  tabs.forEach((tab, at) => {
    tab.addEventListener("click", () => {
      choosePanel(tab.getAttribute("aria-controls"));
      shown(tab.getAttribute("aria-controls"));
    });
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      const next = tabs[(to + tabs.length) % tabs.length];
      next.focus();
      next.click();
    });
  });
}

/** Which panel is shown. */
export const panelShown = () => tabs.find((tab) => tab.getAttribute("aria-selected") === "true").getAttribute("aria-controls");
