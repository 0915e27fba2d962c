// The question before a memory is forgotten.

import { post } from "./api.js";
import { byId, toast } from "./dom.js";
import { nameOf, point } from "./format.js";

/** Asks, and forgets; `done` is called afterwards, `undo` with the operation to take back. */
export function askToForget(memory, { done, undo }) {
  const dialog = byId("forget");
  const secure = byId("forget-secure");
  const note = () => {
    byId("forget-note").textContent = secure.checked ? "It cannot be undone." : "It can be undone.";
    byId("forget-do").textContent = secure.checked ? "Erase for good" : "Forget";
  };
  secure.checked = false;
  secure.onchange = note;
  note();
  byId("forget-reason").value = "";
  const where = memory.position ? `at ${point(...memory.position)}` : "place unknown";
  byId("forget-what").textContent = `${nameOf(memory.label, memory.kind)}, memory #${memory.id}, ${where}`;
  dialog.returnValue = "keep";
  dialog.onclose = async () => {
    if (dialog.returnValue !== "forget") return;
    const reason = byId("forget-reason").value.trim() || "asked for";
    try {
      const { generation, can_be_undone: back } = await post("api/forget", { ids: [memory.id], reason, secure: secure.checked });
      toast(`Memory #${memory.id} is forgotten.`, back ? { label: "Undo", run: () => undo(generation) } : null);
      done();
    } catch (error) {
      toast(error.message);
    }
  };
  dialog.showModal();
}
