// What two short texts have in common, word by word.

const WORDS = /<\|[^|>]{1,40}\|>|[\p{L}\p{N}]+|[^\p{L}\p{N}\s]|\s+/gu;
const MOST = 400;  // words

// {a, b}: each text as pieces {text, same}.
export function compare(a, b) {
  const x = (a.match(WORDS) || []).slice(0, MOST);
  const y = (b.match(WORDS) || []).slice(0, MOST);
  // length[i][j]: of the longest common subsequence of x[i...] and y[j...]
  const length = Array.from({ length: x.length + 1 }, () => new Uint16Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; --i) {
    for (let j = y.length - 1; j >= 0; --j) {
      length[i][j] = x[i] === y[j] ? 1 + length[i + 1][j + 1] : Math.max(length[i + 1][j], length[i][j + 1]);
    }
  }
  const out = { a: [], b: [] };
  const add = (list, text, same) => {
    if (list.length > 0 && list.at(-1).same === same) list.at(-1).text += text;
    else list.push({ text, same });
  };
  let i = 0;
  let j = 0;
  while (i < x.length || j < y.length) {
    if (i < x.length && j < y.length && x[i] === y[j]) {
      add(out.a, x[i++], true);
      add(out.b, y[j++], true);
    } else if (j >= y.length || (i < x.length && length[i + 1][j] >= length[i][j + 1])) add(out.a, x[i++], false);
    else add(out.b, y[j++], false);
  }
  // What one has behind the end of the other is no difference.
  for (const [list, other] of [[out.a, out.b], [out.b, out.a]]) {
    if (list.length > 1 && !list.at(-1).same && other.at(-1)?.same) list.pop();
  }
  return out;
}
