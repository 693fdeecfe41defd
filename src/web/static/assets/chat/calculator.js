// Works out an expression with numbers, + - * / % ^, brackets, constants and a few functions. Nothing of it is run as a
// program.

const LENGTH_MAX = 500;
const DEPTH_MAX = 50;
const TOKEN = /\s*(?:(\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)|([a-z][a-z0-9]*)|(\*\*|[-+*/%^(),]))/iy;
const CONSTANTS = { pi: Math.PI, e: Math.E };
const FUNCTIONS = {
  abs: Math.abs, ceil: Math.ceil, cos: Math.cos, exp: Math.exp, floor: Math.floor, ln: Math.log, log: Math.log10, log10: Math.log10,
  log2: Math.log2, max: Math.max, min: Math.min, round: Math.round, sin: Math.sin, sqrt: Math.sqrt, tan: Math.tan,
};

function split(text) {
  const parts = [];
  TOKEN.lastIndex = 0;
  const end = text.trimEnd().length;
  while (TOKEN.lastIndex < end) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (!match) throw new Error(`“${text.slice(at).trim()[0]}” cannot be read`);
    const [, number, name, sign] = match;
    parts.push(number !== undefined ? { number: Number(number) } : name ? { name: name.toLowerCase() } : { sign: sign === '**' ? '^' : sign });
  }
  return parts;
}

class Expression {
  constructor(text) {
    this.parts = split(text);
    this.at = 0;
    this.depth = 0;
  }

  take(...signs) {
    const sign = this.parts[this.at]?.sign;
    if (!signs.includes(sign)) return null;
    ++this.at;
    return sign;
  }

  need(sign) {
    if (!this.take(sign)) throw new Error(`“${sign}” is missing`);
  }

  sum() {
    if (++this.depth > DEPTH_MAX) throw new Error('too many brackets');
    let value = this.product();
    for (let sign; (sign = this.take('+', '-'));) value = sign === '+' ? value + this.product() : value - this.product();
    --this.depth;
    return value;
  }

  product() {
    let value = this.signed();
    for (let sign; (sign = this.take('*', '/', '%'));) {
      const by = this.signed();
      value = sign === '*' ? value * by : sign === '/' ? value / by : value % by;
    }
    return value;
  }

  signed() {
    let minus = false;
    for (let sign; (sign = this.take('-', '+'));) minus = sign === '-' ? !minus : minus;
    const value = this.power();
    return minus ? -value : value;
  }

  power() {
    if (++this.depth > DEPTH_MAX) throw new Error('too many powers');
    const base = this.single();
    const value = this.take('^') ? base ** this.signed() : base;
    --this.depth;
    return value;
  }

  single() {
    const part = this.parts[this.at++];
    if (part?.number !== undefined) return part.number;
    if (part?.sign === '(') {
      const value = this.sum();
      this.need(')');
      return value;
    }
    if (part?.name && Object.hasOwn(CONSTANTS, part.name)) return CONSTANTS[part.name];
    if (part?.name && Object.hasOwn(FUNCTIONS, part.name)) {
      this.need('(');
      const values = [this.sum()];
      while (this.take(',')) values.push(this.sum());
      this.need(')');
      return FUNCTIONS[part.name](...values);
    }
    throw new Error(part ? `“${part.name ?? part.sign}” is not expected here` : 'the expression is not complete');
  }
}

// The value; throws an Error with a sentence.
export function calculate(text) {
  if (text.length > LENGTH_MAX) throw new Error(`an expression has at most ${LENGTH_MAX} characters`);
  const expression = new Expression(text);
  const value = expression.sum();
  if (expression.at < expression.parts.length) throw new Error('the expression goes on where it should end');
  if (!Number.isFinite(value)) throw new Error('the result is not a number');
  return value;
}
