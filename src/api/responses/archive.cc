// SPDX-License-Identifier: Apache-2.0
#include "api/responses/archive.h"

#include <utility>

#include "api/responses/store.h"
#include "base/json.h"
#include "base/utf8.h"

namespace reprise::api::responses {
namespace {

constexpr char kVersion = 2;
constexpr size_t kItemBytesMin = 1 + 5 * 4 + 4;  // its kind, five empty strings, no pictures
constexpr size_t kPictureBytesMin = 2 * 4;       // its place and an empty file

void PutNumber(size_t number, std::string* out) {
  for (int shift = 0; shift < 32; shift += 8) *out += static_cast<char>(number >> shift & 0xff);
}

void PutText(std::string_view text, std::string* out) {
  PutNumber(text.size(), out);
  *out += text;
}

// Reads from bytes until one thing is wrong; from then on everything is empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  uint8_t Byte() {
    if (!Has(1)) return 0;
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }
  size_t Number() {
    size_t number = 0;
    for (int shift = 0; shift < 32; shift += 8) number |= size_t{Byte()} << shift;
    return number;
  }
  std::string Bytes() {
    const size_t size = Number();
    if (!Has(size)) return "";
    std::string bytes(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return bytes;
  }
  std::string Text() {
    std::string text = Bytes();
    Expect(IsValidUtf8(text));
    return text;
  }
  void Expect(bool condition) { ok_ = ok_ && condition; }
  size_t left() const { return rest_.size(); }
  bool ok() const { return ok_; }

 private:
  bool Has(size_t size) {
    Expect(size <= rest_.size());
    return ok_;
  }

  std::string_view rest_;
  bool ok_ = true;
};

// Pictures stand in order, and not inside a character.
std::vector<ItemPicture> TakePictures(const std::string& text, Reader* reader) {
  std::vector<ItemPicture> pictures;
  const size_t count = reader->Number();
  reader->Expect(count <= reader->left() / kPictureBytesMin);
  size_t last = 0;
  for (size_t i = 0; i < count && reader->ok(); ++i) {
    const size_t place = reader->Number();
    reader->Expect(last <= place && place <= text.size());
    reader->Expect(place >= text.size() || (text[place] & 0xC0) != 0x80);
    last = place;
    pictures.push_back({place, reader->Bytes(), ""});
  }
  return pictures;
}

Item TakeItem(Reader* reader) {
  Item item;
  const uint8_t kind = reader->Byte();
  reader->Expect(kind <= static_cast<uint8_t>(Item::Kind::kCustomOutput));
  item.kind = static_cast<Item::Kind>(reader->ok() ? kind : 0);
  item.id = reader->Text();
  item.role = reader->Text();
  item.text = reader->Text();
  item.call_id = reader->Text();
  item.name = reader->Text();
  item.pictures = TakePictures(item.text.get(), reader);
  const bool message = item.kind == Item::Kind::kMessage;
  const bool speaker = item.role == "system" || item.role == "user" || item.role == "assistant";
  reader->Expect(message ? speaker : item.role.empty());
  reader->Expect(item.pictures.empty() || item.kind == Item::Kind::kCallOutput ||
                 item.kind == Item::Kind::kCustomOutput || item.role == "user");
  return item;
}

}  // namespace

std::string EncodeResponse(const StoredResponse& response) {
  std::string out(1, kVersion);
  PutText(response.body, &out);
  PutNumber(response.input_begin, &out);
  PutNumber(response.input_end, &out);
  PutNumber(response.items.size(), &out);
  for (const Item& item : response.items) {
    out += static_cast<char>(item.kind);
    for (const std::string* text :
         {&item.id, &item.role, &item.text.get(), &item.call_id, &item.name}) {
      PutText(*text, &out);
    }
    PutNumber(item.pictures.size(), &out);
    for (const ItemPicture& picture : item.pictures) {
      PutNumber(picture.content_bytes, &out);
      PutText(picture.file.get(), &out);
    }
  }
  return out;
}

Result<StoredResponse> DecodeResponse(std::string_view bytes) {
  Reader reader(bytes);
  StoredResponse response;
  reader.Expect(reader.Byte() == kVersion);
  response.body = reader.Text();
  response.input_begin = reader.Number();
  response.input_end = reader.Number();
  const size_t count = reader.Number();
  reader.Expect(count <= reader.left() / kItemBytesMin);
  reader.Expect(response.input_begin <= response.input_end && response.input_end <= count);
  for (size_t i = 0; i < count && reader.ok(); ++i) response.items.push_back(TakeItem(&reader));
  reader.Expect(reader.left() == 0);
  if (reader.ok()) {
    const auto body = JsonDocument::Parse(response.body);
    reader.Expect(body.ok() && body->root().is_object());
  }
  if (!reader.ok()) return DataLoss("a stored response is not in its format");
  return response;
}

}  // namespace reprise::api::responses
