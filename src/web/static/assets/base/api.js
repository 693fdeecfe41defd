// Requests to the server this page came from, with the API key where one was given.

const KEY = 'reprise.key';

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Kept for this tab only.
export const apiKey = {
  get: () => sessionStorage.getItem(KEY) || '',
  set: (key) => (key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY)),
};

function explain(status, message) {
  if (status === 401) {
    return apiKey.get()
      ? 'The server does not know this API key.'
      : 'This server needs an API key.';
  }
  if (status === 429) return `The server is busy: ${message}`;
  return message || `The server answered with status ${status}.`;
}

async function request(path, { body, signal } = {}) {
  const headers = {};
  if (apiKey.get()) headers.authorization = `Bearer ${apiKey.get()}`;
  if (body) headers['content-type'] = 'application/json';
  let response;
  try {
    response = await fetch(path, {
      method: body ? 'POST' : 'GET', headers, signal, cache: 'no-store',
      body: body && JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'The server cannot be reached. Is it still running?');
  }
  if (response.ok) return response;
  let message = '';
  try {
    message = (await response.json()).error.message;
  } catch {
    // Not from the API itself: the status says it all.
  }
  throw new ApiError(response.status, explain(response.status, message));
}

export async function getJson(path) {
  return (await request(path)).json();
}

export async function postJson(path, body) {
  return (await request(path, { body })).json();
}

// The data of each server-sent event, parsed. Ends at "[DONE]" or with the stream.
export async function* events(path, { body, signal } = {}) {
  const response = await request(path, { body, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split('\n\n');
      rest = parts.pop();
      for (const part of parts) {
        const data = dataOf(part);
        if (data === '[DONE]') return;
        if (data) yield JSON.parse(data);
      }
    }
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'The connection to the server was lost.');
  } finally {
    reader.cancel().catch(() => {});
  }
}

function dataOf(event) {
  return event.split('\n').filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).trimStart()).join('\n');
}
