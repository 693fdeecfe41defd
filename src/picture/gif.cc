// SPDX-License-Identifier: Apache-2.0
// GIF, its first frame: small enough to be read here, without a library.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "picture/formats.h"

namespace reprise {
namespace {

constexpr size_t kHeaderBytes = 13;
constexpr size_t kFrameBytes = 10;
constexpr int kHasColours = 0x80;

Status Damaged() {
  return InvalidArgument("the GIF picture cannot be read: it is damaged or cut off");
}

using Colour = std::array<uint8_t, 3>;
using Palette = std::array<Colour, 256>;

Palette Greys() {
  Palette greys;
  for (int i = 0; i < 256; ++i) greys[size_t(i)].fill(uint8_t(i));
  return greys;
}

// What comes before the pixels of the first frame.
struct FirstFrame {
  PictureSize size;  // of the screen, and of what the frame has beyond it
  int x = 0, y = 0, width = 0, height = 0;
  bool interlaced = false;
  Palette colours{};
  int fill = 0;           // the index of what no pixel covers
  std::string_view data;  // from the size of the first code on
};

class FrameReader {
 public:
  explicit FrameReader(std::string_view file) : file_(file) {}

  Result<FirstFrame> Run() {
    if (file_.size() < kHeaderBytes) return Damaged();
    frame_.size = {Word(6), Word(8)};
    const int flags = Byte(10);
    at_ = kHeaderBytes;
    frame_.colours = Greys();
    if ((flags & kHasColours) != 0 && !TakeColours(flags)) return Damaged();
    while (at_ < file_.size()) {
      const int kind = Byte(at_++);
      if (kind == ';') break;
      if (kind == '!' && !SkipExtension()) return Damaged();
      if (kind == ',') return TakeFrame();
    }
    return Damaged();
  }

 private:
  int Byte(size_t at) const { return static_cast<uint8_t>(file_[at]); }
  int Word(size_t at) const { return Byte(at) | Byte(at + 1) << 8; }
  bool Has(size_t bytes) const { return file_.size() - at_ >= bytes; }

  bool TakeColours(int flags) {
    const size_t count = size_t{2} << (flags & 7);
    if (!Has(3 * count)) return false;
    Palette colours{};
    for (size_t i = 0; i < count; ++i) {
      for (size_t c = 0; c < 3; ++c) colours[i][c] = uint8_t(Byte(at_++));
    }
    // What is beyond the colours is black; grey in order is no palette to Pillow but grey itself.
    const Palette grey = Greys();
    const bool ordered = std::equal(grey.begin(), grey.begin() + ptrdiff_t(count), colours.begin());
    frame_.colours = ordered ? grey : colours;
    return true;
  }

  // Of the extensions only one says what the pixels are: which index is transparent.
  bool SkipExtension() {
    constexpr int kControl = 0xF9;
    if (!Has(1)) return false;
    const int label = Byte(at_++);
    for (bool first = true; Has(1); first = false) {
      const size_t size = size_t(Byte(at_++));
      if (size == 0) return true;
      if (!Has(size)) return false;
      if (first && label == kControl && size >= 4 && (Byte(at_) & 1) != 0) {
        frame_.fill = Byte(at_ + 3);
      }
      at_ += size;
    }
    return false;
  }

  Result<FirstFrame> TakeFrame() {
    if (!Has(kFrameBytes - 1)) return Damaged();
    frame_.x = Word(at_);
    frame_.y = Word(at_ + 2);
    frame_.width = Word(at_ + 4);
    frame_.height = Word(at_ + 6);
    const int flags = Byte(at_ + 8);
    at_ += kFrameBytes - 1;
    frame_.interlaced = (flags & 0x40) != 0;
    frame_.size.width = std::max(frame_.size.width, frame_.x + frame_.width);
    frame_.size.height = std::max(frame_.size.height, frame_.y + frame_.height);
    if ((flags & kHasColours) != 0 && !TakeColours(flags)) return Damaged();
    frame_.data = file_.substr(at_);
    return frame_;
  }

  const std::string_view file_;
  size_t at_ = 0;
  FirstFrame frame_;
};

// Codes of growing width out of blocks of at most 255 bytes.
class CodeReader {
 public:
  explicit CodeReader(std::string_view data) : data_(data) {}

  std::optional<int> Next(int width) {
    while (count_ < width) {
      if (left_ == 0) {
        if (at_ == data_.size()) return std::nullopt;
        left_ = static_cast<uint8_t>(data_[at_++]);
        if (left_ == 0) return std::nullopt;  // the end of all blocks
      }
      if (at_ == data_.size()) return std::nullopt;
      bits_ |= uint32_t{static_cast<uint8_t>(data_[at_++])} << count_;
      count_ += 8;
      --left_;
    }
    const int code = int(bits_ & ((1u << width) - 1));
    bits_ >>= width;
    count_ -= width;
    return code;
  }

 private:
  const std::string_view data_;
  size_t at_ = 0;
  size_t left_ = 0;  // bytes of the block
  uint32_t bits_ = 0;
  int count_ = 0;
};

// Puts indices where they belong, row by row, or in the four passes of interlaced frames.
class Painter {
 public:
  Painter(const FirstFrame& frame, Pixels* pixels) : frame_(frame), pixels_(pixels) {
    done_ = frame.width == 0 || frame.height == 0;
  }

  bool done() const { return done_; }
  void Put(int index) {
    if (done_) return;
    const size_t at = size_t(frame_.y + row_) * size_t(pixels_->width) + size_t(frame_.x + column_);
    std::copy_n(frame_.colours[size_t(index)].begin(), 3, pixels_->rgb.begin() + ptrdiff_t(3 * at));
    if (++column_ < frame_.width) return;
    column_ = 0;
    NextRow();
  }

 private:
  void NextRow() {
    constexpr int kFirst[4] = {0, 4, 2, 1}, kStep[4] = {8, 8, 4, 2};
    row_ += frame_.interlaced ? kStep[pass_] : 1;
    while (row_ >= frame_.height) {
      if (!frame_.interlaced || ++pass_ == 4) {
        done_ = true;
        return;
      }
      row_ = kFirst[pass_];
    }
  }

  const FirstFrame& frame_;
  Pixels* pixels_;
  int column_ = 0;
  int row_ = 0;
  int pass_ = 0;
  bool done_ = false;
};

// LZW. A code is a string: the string of an earlier code and one index more.
class Unpacker {
 public:
  Unpacker(std::string_view data, int first_width)
      : codes_(data), first_width_(first_width), clear_(1 << first_width) {
    Clear();
  }

  // To the last pixel. What ends before it is refused, as Pillow does.
  Status Run(Painter* painter) {
    int before = -1;  // the code before this one
    while (!painter->done()) {
      const std::optional<int> code = codes_.Next(width_);
      if (!code || *code == clear_ + 1) return Damaged();
      if (*code == clear_) {
        Clear();
        before = -1;
        continue;
      }
      if (*code > next_ || (before < 0 && *code >= clear_)) return Damaged();
      if (*code == next_ && (before < 0 || next_ == kCodes)) return Damaged();
      Paint(*code == next_ ? before : *code, *code == next_, painter);
      if (before >= 0) Learn(before);
      before = *code;
    }
    return OkStatus();
  }

 private:
  static constexpr int kCodes = 4096;
  static constexpr int kWidthMax = 12;

  void Clear() {
    width_ = first_width_ + 1;
    next_ = clear_ + 2;
  }

  // The string of a code, and its first index once more where the code is the one being learnt.
  void Paint(int code, bool again, Painter* painter) {
    int size = 0;
    for (; code >= clear_; code = prefix_[size_t(code)])
      string_[size_t(size++)] = last_[size_t(code)];
    first_ = uint8_t(code);
    painter->Put(code);
    while (size > 0) painter->Put(string_[size_t(--size)]);
    if (again) painter->Put(first_);
  }

  void Learn(int before) {
    if (next_ == kCodes) return;
    prefix_[size_t(next_)] = uint16_t(before);
    last_[size_t(next_)] = first_;
    if (++next_ == 1 << width_ && width_ < kWidthMax) ++width_;
  }

  CodeReader codes_;
  const int first_width_;
  const int clear_;
  int width_ = 0;
  int next_ = 0;       // the code that is learnt next
  uint8_t first_ = 0;  // of the last string
  std::array<uint16_t, kCodes> prefix_;
  std::array<uint8_t, kCodes> last_;
  std::array<uint8_t, kCodes> string_;
};

}  // namespace

Result<PictureSize> ReadGifSize(std::string_view file) {
  REPRISE_ASSIGN(const FirstFrame frame, FrameReader(file).Run());
  return frame.size;
}

Result<Pixels> DecodeGif(std::string_view file, const PictureLimits& limits, std::string*) {
  constexpr int kWidthMin = 1, kFirstWidthMax = 8;
  REPRISE_ASSIGN(const FirstFrame frame, FrameReader(file).Run());
  REPRISE_TRY(CheckPictureSize(frame.size, limits));
  if (frame.data.empty()) return Damaged();
  const int first_width = static_cast<uint8_t>(frame.data[0]);
  if (first_width < kWidthMin || first_width > kFirstWidthMax) return Damaged();
  Pixels pixels{frame.size.width, frame.size.height, {}};
  const Colour& fill = frame.colours[size_t(frame.fill)];
  pixels.rgb.resize(size_t(pixels.width) * size_t(pixels.height) * 3);
  for (size_t i = 0; i < pixels.rgb.size(); ++i) pixels.rgb[i] = fill[i % 3];
  Painter painter(frame, &pixels);
  REPRISE_TRY(Unpacker(frame.data.substr(1), first_width).Run(&painter));
  return pixels;
}

}  // namespace reprise
