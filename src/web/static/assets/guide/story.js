// A long text for the guided start: many short sentences, made up from a few words.

const WHO = ['Anna', 'Tom', 'the old miller', 'a small dog', 'the baker', 'Lily', 'a grey cat', 'Ben', 'the teacher', 'a little bird'];
const DID = ['found a red ball', 'lost a warm hat', 'baked sweet bread', 'sang a quiet song', 'planted a tree', 'painted the door',
  'caught a big fish', 'built a small boat', 'told a funny story', 'picked ripe apples'];
const WHERE = ['by the river', 'in the garden', 'near the school', 'under the bridge', 'on the hill', 'at the market', 'in the kitchen',
  'behind the barn', 'in the forest', 'by the lake'];
const THEN = ['Everyone was happy.', 'It rained all day.', 'The sun was bright.', 'Nobody knew why.', 'They laughed together.'];

// About `characters` long, always the same for the same number.
export function makeStory(characters) {
  const capital = (text) => text[0].toUpperCase() + text.slice(1);
  let text = '';
  for (let i = 0; text.length < characters; ++i) {
    const pick = (list, salt) => list[Math.floor(i / salt + i * salt) % list.length];
    text += `On day ${i + 1}, ${pick(WHO, 3)} ${pick(DID, 7)} ${pick(WHERE, 11)}. ${capital(pick(WHO, 13))} was there, too. ${pick(THEN, 2)} `;
  }
  return text.trim();
}
