// Pictures on their way to a model. One that is large is made smaller here: a photo of 12 million pixels would cost 12,000
// tokens and show a model little more. What the server does not read (AVIF, ...) becomes PNG, if the browser reads it.

const SIDE_MAX = 1536;  // pixels
const BYTES_MAX = 4 << 20;
const READ = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];  // by the server

function asUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

// A data URL of the picture; throws an Error with a sentence for a person.
export async function shrunk(file) {
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name} is not a picture that this browser can read.`);
  }
  const { width, height } = picture;
  const scale = Math.min(1, SIDE_MAX / Math.max(width, height));
  const keep = scale === 1 && READ.includes(file.type) && file.size <= BYTES_MAX;
  try {
    if (keep) return await asUrl(file);
    const canvas = new OffscreenCanvas(Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale)));
    const pen = canvas.getContext('2d');
    pen.imageSmoothingQuality = 'high';
    pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await asUrl(await canvas.convertToBlob(file.type === 'image/jpeg' ? { type: 'image/jpeg', quality: 0.92 } : { type: 'image/png' }));
  } finally {
    picture.close();
  }
}
