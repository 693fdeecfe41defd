// Numbers as people read them.

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

export const count = (n) => whole.format(n);

export function tokens(n) {
  return `${count(n)} ${n === 1 ? 'token' : 'tokens'}`;
}

export function milliseconds(ms) {
  if (ms >= 10000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  return ms >= 10 ? `${ms.toFixed(0)} ms` : `${ms.toFixed(1)} ms`;
}

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    ++i;
  }
  return `${n >= 100 || i === 0 ? n.toFixed(0) : n.toFixed(1)} ${units[i]}`;
}

export function ago(ms) {
  if (ms < 1500) return 'just now';
  if (ms < 90e3) return `${count(ms / 1000)} s ago`;
  if (ms < 5400e3) return `${count(ms / 60e3)} min ago`;
  return `${count(ms / 3600e3)} h ago`;
}

export function clock(time_ms) {
  return new Date(time_ms).toLocaleTimeString('en-GB');
}

export function percent(part, all) {
  return all > 0 ? `${Math.floor((100 * part) / all)} %` : '0 %';
}
