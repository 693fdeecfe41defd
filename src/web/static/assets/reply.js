// One reply on its way: asks for it, grows the message as it streams in, ends it.
import { events, ApiError } from './api.js';

// All that was said, but for what was refused: a message whose answer failed before it began.
function promptOf(conversation) {
  const failed = (m) => m && m.error && !m.content;
  const said = conversation.messages.filter((m, i, all) => m.content && !failed(m) && !failed(all[i + 1]))
    .map(({ role, content }) => ({ role, content }));
  return conversation.system.trim() ? [{ role: 'system', content: conversation.system }, ...said] : said;
}

export class Reply {
  // `changed` is called whenever the message has grown.
  constructor(conversation, options, changed) {
    this.conversation = conversation;
    this.body = {
      messages: promptOf(conversation), stream: true, stream_options: { include_usage: true },
      prompt_cache_key: conversation.id, ...options,
    };
    this.changed = changed;
    this.abort = new AbortController();
    this.message = { role: 'assistant', content: '' };
    conversation.messages.push(this.message);
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
    if (delta?.reasoning_content) message.reasoning = (message.reasoning || '') + delta.reasoning_content;
    if (delta?.content) message.content += delta.content;
    for (const { index, function: part } of delta?.tool_calls || []) {
      message.calls = message.calls || [];
      const call = (message.calls[index] = message.calls[index] || { name: '', arguments: '' });
      call.name += part.name || '';
      call.arguments += part.arguments || '';
    }
    if (chunk.choices?.[0]?.finish_reason === 'length') message.cut = true;
    if (chunk.reprise) {
      message.report = chunk.reprise;
      message.request_id = String(chunk.id || '').replace(/^chatcmpl-/, '');
    }
  }
}
