// Where a message is written: a field that grows with it, files that go with it, what will hold for the reply.
import { h, button, visible } from '../base/dom.js';
import { icon, iconButton } from '../base/icons.js';
import { bytes } from '../base/format.js';
import { FILES_MAX, readFile, sizeOf } from './attachments.js';

const HIGHEST = 0.4;  // of the window

export class Composer {
  // `send({content, files})`, `stop()`, `editLast()`: what the person does.
  constructor({ send, stop, editLast }) {
    this.send = send;
    this.files = [];
    this.sees = false;  // whether pictures can go with a message
    this.input = h('textarea', {
      id: 'input', rows: '1', placeholder: 'Write a message', 'aria-label': 'Message',
      onkeydown: (event) => this.onKey(event, editLast),
      oninput: () => this.grow(),
      onpaste: (event) => this.takeFiles(event, event.clipboardData),
    });
    this.picker = h('input', { type: 'file', multiple: true, hidden: true, id: 'attach-file', onchange: () => this.pick() });
    this.attach = iconButton('attach', 'Attach text files', () => this.picker.click(), { id: 'attach' });
    this.sendButton = h('button', { type: 'submit', class: 'main icon-button', id: 'send', 'aria-label': 'Send', title: 'Send' }, icon('send'));
    this.stopButton = iconButton('stop', 'Stop', stop, { id: 'stop', hidden: true, class: 'main' });
    this.problem = h('p', { class: 'error', role: 'alert', id: 'problem' });
    this.fileList = h('ul', { class: 'chips', id: 'files' });
    this.form = document.getElementById('compose');
    this.form.append(this.problem, h('div', { class: 'box' }, this.fileList,
      h('div', { class: 'line' }, this.attach, this.picker, this.input, this.sendButton, this.stopButton)));
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.submit();
    });
    addEventListener('resize', () => this.grow());
    this.takeDropped();
  }

  onKey(event, editLast) {
    if (event.key === 'ArrowUp' && !this.input.value && editLast() !== false) event.preventDefault();
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.submit();
  }

  // As high as its text, up to a part of the window.
  grow() {
    const { style } = this.input;
    style.height = 'auto';
    const { scrollHeight, offsetHeight, clientHeight } = this.input;
    const most = Math.round(innerHeight * HIGHEST);
    style.height = `${Math.min(most, scrollHeight + offsetHeight - clientHeight)}px`;
    style.overflowY = scrollHeight > most ? 'auto' : 'hidden';
  }

  setBusy(busy) {
    this.busy = busy;
    this.sendButton.hidden = busy;
    this.stopButton.hidden = !busy;
  }

  submit() {
    const content = this.input.value;
    if (this.busy || (!content.trim() && this.files.length === 0)) return;
    const { files } = this;
    this.set('', []);
    this.problem.textContent = '';
    this.send({ content, ...(files.length > 0 && { files }) });
  }

  set(text, files) {
    this.input.value = text;
    this.files = files;
    this.drawFiles();
    this.grow();
  }

  // Gives a message that was refused back to its writer, unless there is another one already.
  takeBack({ content, files = [] }, problem) {
    this.problem.textContent = problem;
    if (!this.input.value && this.files.length === 0) this.set(content, files);
    this.input.focus();
  }

  async addFiles(list) {
    this.problem.textContent = '';
    for (const file of list) {
      try {
        if (this.files.length >= FILES_MAX) throw new Error(`A message has at most ${FILES_MAX} files.`);
        this.files.push(await readFile(file, this.sees));
      } catch (error) {
        this.problem.textContent = visible(error.message);
      }
    }
    this.drawFiles();
  }

  // Whether the model looks at pictures.
  setSees(sees) {
    this.sees = sees;
    const label = sees ? 'Attach pictures or text files' : 'Attach text files';
    this.attach.title = label;
    this.attach.setAttribute('aria-label', label);
  }

  async pick() {
    await this.addFiles([...this.picker.files]);
    this.picker.value = '';
    this.input.focus();
  }

  takeFiles(event, transfer) {
    const files = [...(transfer?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    this.addFiles(files);
  }

  takeDropped() {
    const chat = document.getElementById('chat');
    chat.addEventListener('dragover', (event) => event.dataTransfer?.types.includes('Files') && event.preventDefault());
    chat.addEventListener('drop', (event) => this.takeFiles(event, event.dataTransfer));
  }

  drawFiles() {
    this.fileList.replaceChildren(...this.files.map((file) => h('li', {}, file.image ? h('img', { src: file.image, alt: '' }) : icon('file'),
      h('span', { class: 'name' }, visible(file.name)), h('span', { class: 'hint' }, bytes(sizeOf(file))),
      iconButton('close', `Remove ${visible(file.name)}`, () => {
        this.files = this.files.filter((other) => other !== file);
        this.drawFiles();
      }))));
  }

  // What holds for the next reply, such as a schema: [{text, open}].
  setNotes(notes) {
    this.notes?.remove();
    this.notes = notes.length === 0 ? null : h('p', { class: 'notes', id: 'notes' }, notes.map(({ text, open }) => button(text, open, { class: 'note' })));
    if (this.notes) this.form.append(this.notes);
  }
}
