// The requests of the service, made of openapi.json: nothing is asked of another host.

const said = document.getElementById("said");
const place = document.getElementById("requests");

function made(name, text = "", parts = []) {
  const [kind, style] = name.split(".");
  const element = document.createElement(kind);
  if (style) element.className = style;
  if (text) element.textContent = text.replaceAll("``", "");
  element.append(...parts);
  return element;
}

function resolved(schema, root) {
  const name = schema?.$ref?.split("/").pop();
  return name ? root.components.schemas[name] : schema || {};
}

/** What may stand there, in a few words: "list of number, at least 2". */
function kindOf(schema, root, depth = 0) {
  const own = resolved(schema, root);
  const choices = own.anyOf || own.oneOf;
  if (choices) return [...new Set(choices.map((one) => kindOf(one, root, depth)))].join(" or ");
  if (own.enum) return own.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (own.const !== undefined) return JSON.stringify(own.const);
  if (own.type === "array") {
    const items = own.items && depth < 3 ? " of " + kindOf(own.items, root, depth + 1) : "";
    return "list" + items + limits(own, "minItems", "maxItems");
  }
  if (own.type === "object" || own.properties) return own.title || "object";
  return (own.type || "anything") + limits(own, "minimum", "maximum") + limits(own, "minLength", "maxLength");
}

function limits(schema, low, high) {
  // Limits of 64 bits say nothing to a reader.
  const told = (value) => value !== undefined && Math.abs(value) < 2 ** 53;
  if (told(schema[low]) && told(schema[high])) return ` (${schema[low]} to ${schema[high]})`;
  if (told(schema[low])) return ` (at least ${schema[low]})`;
  return told(schema[high]) ? ` (at most ${schema[high]})` : "";
}

function table(heads, rows) {
  const head = made("tr", "", heads.map((text) => Object.assign(made("th", text), { scope: "col" })));
  const body = rows.map((cells) => made("tr", "", cells.map((cell) => made("td", "", [cell]))));
  const whole = made("table", "", [made("thead", "", [head]), made("tbody", "", body)]);
  return Object.assign(made("div.scroll", "", [whole]), { tabIndex: 0 });
}

function field(name, schema, needed, description, root) {
  const preset = schema.default === undefined || schema.default === null ? "" : `default ${JSON.stringify(schema.default)}`;
  const about = [needed ? "needed" : "", description || resolved(schema, root).description || "", preset];
  return [made("code", name), kindOf(schema, root), about.filter(Boolean).join("; ")];
}

function fields(schema, root) {
  const own = resolved(schema, root);
  const needed = new Set(own.required || []);
  return Object.entries(own.properties || {}).map(([name, one]) => field(name, one, needed.has(name), one.description, root));
}

/** Tables of a schema, and of the objects that its lists hold. */
function schemaTables(title, schema, root) {
  const found = [], open = [[title, schema]], seen = new Set();
  while (open.length) {
    const [name, next] = open.shift();
    const own = resolved(next, root);
    if (seen.has(own)) continue;
    seen.add(own);
    const rows = fields(own, root);
    if (rows.length) found.push(made("h2", name), table(["field", "what", "about"], rows));
    for (const one of Object.values(own.properties || {})) {
      for (const part of [one, ...(one.anyOf || [])]) {
        const inner = part.items?.$ref || part.$ref;
        if (inner) open.push([inner.split("/").pop(), { $ref: inner }]);
      }
    }
  }
  return found;
}

function example(method, path) {
  const address = location.origin + path.replace("{id}", "1");
  return method === "post" ? `curl -s ${address} --json '{…}'` : `curl -s ${address}`;
}

function request(path, method, operation, root) {
  const heading = [made(`span.method ${method}`, method.toUpperCase()), made("code", path), made("span", operation.summary || "")];
  const inside = [made("p", operation.description || ""), made("pre", example(method, path))];
  const parameters = (operation.parameters || []).map((one) => field(one.name, one.schema, one.required, one.description, root));
  if (parameters.length) inside.push(made("h2", "In the address"), table(["name", "what", "about"], parameters));
  const body = operation.requestBody?.content["application/json"]?.schema;
  if (body) inside.push(...schemaTables("Body", body, root));
  const answer = operation.responses["200"]?.content?.["application/json"]?.schema;
  if (answer) inside.push(...schemaTables("Answer", answer, root));
  const refusals = Object.entries(operation.responses).filter(([status]) => Number(status) >= 400);
  inside.push(made("h2", "Refusals"), table(["status", "why"], refusals.map(([status, one]) => [made("code", status), one.description])));
  const whole = made("details", "", [made("summary", "", heading), made("div.request", "", inside)]);
  whole.id = `${method}-${path.slice(1).replaceAll(/[^a-z]+/g, "-")}`;
  return whole;
}

function find() {
  const wanted = document.getElementById("find").value.trim().toLowerCase();
  let shown = 0;
  for (const one of place.querySelectorAll("details")) {
    one.hidden = Boolean(wanted) && !one.textContent.toLowerCase().includes(wanted);
    shown += !one.hidden;
  }
  said.textContent = `${shown} requests`;
}

try {
  const answer = await fetch("../openapi.json");
  if (!answer.ok) throw new Error(`openapi.json: ${answer.status}`);
  const root = await answer.json();
  for (const [path, methods] of Object.entries(root.paths))
    for (const [method, operation] of Object.entries(methods)) place.append(request(path, method, operation, root));
  if (root.security) place.insertBefore(made("p.note", "Every request needs the token: Authorization: Bearer TOKEN."), said.nextSibling);
  document.getElementById("find").addEventListener("input", find);
  find();
  if (location.hash) document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
} catch (problem) {
  said.textContent = `The requests cannot be shown: ${problem.message}`;
  said.classList.add("problem");
}
