// One reply on its way: asks for it, grows the message as it streams in, ends it.
import { events, ApiError } from '../base/api.js';
import { contentOf } from './attachments.js';
import { path } from './thread.js';

// A reply that called tools, and what they answered.
function withCalls({ content, calls }) {
  return [
    { role: 'assistant', content, tool_calls: calls.map(({ id, name, arguments: text }) => (
      { id, type: 'function', function: { name, arguments: text || '{}' } })) },
    ...calls.map(({ id, result }) => ({ role: 'tool', tool_call_id: id, content: result })),
  ];
}

// All that was said before `message`, but for what was refused: a message whose answer failed before it began.
function promptOf(conversation, message) {
  const way = path(conversation);
  const before = way.slice(0, way.indexOf(message));
  const failed = (m) => m && m.error && !m.content;
  const said = before.filter((m, i) => !failed(m) && !failed(before[i + 1])).flatMap((m) => {
    if (m.calls?.length > 0 && m.calls.every((call) => call.id && typeof call.result === 'string')) return withCalls(m);
    const content = contentOf(m);
    return content ? [{ role: m.role, content }] : [];
  });
  return conversation.system.trim() ? [{ role: 'system', content: conversation.system }, ...said] : said;
}

export class Reply {
  // Fills `message`, which is on the way that the conversation shows; one that has begun already goes on.
  // `changed` is called whenever it has grown.
  constructor(conversation, message, options, changed) {
    this.conversation = conversation;
    this.message = message;
    this.changed = changed;
    this.abort = new AbortController();
    const messages = promptOf(conversation, message);
    if (message.content) messages.push({ role: 'assistant', content: message.content });
    this.body = { messages, stream: true, stream_options: { include_usage: true }, prompt_cache_key: conversation.id, ...options };
    for (const name of ['error', 'status', 'stopped', 'cut', 'report', 'request_id']) delete message[name];
  }

  stop() {
    this.abort.abort();
  }

  // Never throws: what went wrong is told in the message.
  async run() {
    const { message } = this;
    try {
      for await (const chunk of events('/v1/chat/completions', { body: this.body, signal: this.abort.signal })) {
        this.take(chunk);
        this.changed();
      }
    } catch (error) {
      if (error.name === 'AbortError') message.stopped = true;
      else {
        message.error = error.message;
        message.status = error.status ?? 0;
      }
    }
    this.changed();
    return message;
  }

  take(chunk) {
    const { message } = this;
    if (chunk.error) throw new ApiError(chunk.error.code || 500, chunk.error.message);
    const delta = chunk.choices?.[0]?.delta;
    if (delta?.reasoning_content) this.think(delta.reasoning_content);
    if (delta?.content) {
      if (!message.content && this.began !== undefined) this.think('');
      message.content += delta.content;
    }
    for (const { index, id, function: part } of delta?.tool_calls || []) {
      message.calls = message.calls || [];
      const call = (message.calls[index] = message.calls[index] || { name: '', arguments: '' });
      if (id) call.id = id;
      call.name += part.name || '';
      call.arguments += part.arguments || '';
    }
    if (chunk.choices?.[0]?.finish_reason === 'length') message.cut = true;
    if (chunk.reprise) {
      message.report = chunk.reprise;
      message.request_id = String(chunk.id || '').replace(/^chatcmpl-/, '');
    }
  }

  // The time that it takes is counted from its first word to the first of the answer.
  think(text) {
    const now = performance.now();
    this.began = this.began ?? now;
    this.message.reasoning = (this.message.reasoning || '') + text;
    this.message.thinking_ms = Math.round(now - this.began);
  }
}
