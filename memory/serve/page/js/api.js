// Requests to the service this page came from.

let token = "";
try {
  token = sessionStorage.getItem("recall-token") ?? "";
} catch {
  // Storage may be forbidden: the token then lasts as long as the page.
}

/** A request that was refused, or to which nothing answered (status 0). */
export class ApiError extends Error {
  constructor(status, type, message) {
    super(message);
    this.status = status;
    this.type = type;
  }
}

/** What later requests bring. */
export function useToken(text) {
  token = text;
  try {
    sessionStorage.setItem("recall-token", text);
  } catch {
    // See above.
  }
}

/** Where events are followed; an EventSource sends no header. */
export const eventsAddress = (after) => `api/events?after=${after}${token ? `&token=${encodeURIComponent(token)}` : ""}`;

async function ask(path, { method = "GET", body, signal } = {}) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The service does not answer.");
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => null);
    throw new ApiError(answer.status, said?.error?.type ?? "failed", said?.error?.message ?? `status ${answer.status}`);
  }
  return answer;
}

/** The JSON that a path answers with. */
export const getJson = async (path, options) => (await ask(path, options)).json();

/** Send JSON. */
export const post = async (path, body, options = {}) => (await ask(path, { ...options, method: "POST", body })).json();

/** The bytes that a path answers with. */
export const getBytes = async (path, options) => (await ask(path, options)).arrayBuffer();

let paths = null;
/** Whether this service has a path: it may be older or newer than the page. */
export async function hasPath(path) {
  paths ??= getJson("openapi.json").then((found) => new Set(Object.keys(found.paths)), () => new Set());
  return (await paths).has(path);
}
