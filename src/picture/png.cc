// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "picture/formats.h"

// libpng reports errors by longjmp: the functions that it may leave so have nothing to destroy.
namespace reprise {
namespace {

// A file that is being read. Plain: errors jump over its users.
struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const char* data = nullptr;
  size_t left = 0;
  char error[160] = {};
};

void Fail(png_structp png, png_const_charp message) {
  auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::snprintf(reader->error, sizeof(reader->error), "%s", message);
  longjmp(png_jmpbuf(png), 1);
}

void Ignore(png_structp, png_const_charp) {}

void Read(png_structp png, png_bytep out, size_t count) {
  auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (count > reader->left) png_error(png, "it is cut off");
  std::memcpy(out, reader->data, count);
  reader->data += count;
  reader->left -= count;
}

bool Create(PngReader* reader, std::string_view file) {
  reader->data = file.data();
  reader->left = file.size();
  reader->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, reader, Fail, Ignore);
  if (reader->png == nullptr) return false;
  reader->info = png_create_info_struct(reader->png);
  return reader->info != nullptr;
}

// Everything in front of the pixels.
bool ReadHeader(PngReader* reader, const PictureLimits& limits) {
  constexpr png_alloc_size_t kChunkBytesMax = png_alloc_size_t{8} << 20;
  constexpr png_uint_32 kChunksMax = 128;
  if (setjmp(png_jmpbuf(reader->png)) != 0) return false;
  png_set_read_fn(reader->png, reader, Read);
  const auto side = static_cast<png_uint_32>(limits.side_max);
  png_set_user_limits(reader->png, side, side);
  png_set_chunk_malloc_max(reader->png, kChunkBytesMax);
  png_set_chunk_cache_max(reader->png, kChunksMax);
  png_read_info(reader->png, reader->info);
  return true;
}

// `rows`: one place for each row, of three bytes a pixel.
bool ReadRows(PngReader* reader, png_bytepp rows, size_t row_bytes) {
  if (setjmp(png_jmpbuf(reader->png)) != 0) return false;
  const png_byte color = png_get_color_type(reader->png, reader->info);
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(reader->png);
  if ((color & PNG_COLOR_MASK_COLOR) == 0) {
    if (png_get_bit_depth(reader->png, reader->info) < 8) {
      png_set_expand_gray_1_2_4_to_8(reader->png);
    }
    png_set_gray_to_rgb(reader->png);
  }
  png_set_strip_16(reader->png);
  png_set_strip_alpha(reader->png);
  (void)png_set_interlace_handling(reader->png);
  png_read_update_info(reader->png, reader->info);
  if (png_get_rowbytes(reader->png, reader->info) != row_bytes) {
    png_error(reader->png, "its rows have another width than its header says");
  }
  png_read_image(reader->png, rows);
  png_read_end(reader->png, reader->info);
  return true;
}

// Owns what libpng allocates.
class Png {
 public:
  Png() = default;
  ~Png() { png_destroy_read_struct(&reader_.png, &reader_.info, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  PngReader& reader() { return reader_; }
  Status Damaged() const {
    return InvalidArgument(std::string("the PNG picture cannot be read: ") +
                           (reader_.error[0] != 0 ? reader_.error : "no memory"));
  }

 private:
  PngReader reader_;
};

uint32_t BigEndian(const char* at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(at[i]);
  return value;
}

}  // namespace

Result<PictureSize> ReadPngSize(std::string_view file) {
  constexpr size_t kWidth = 16, kHeaderBytes = 24;
  constexpr uint32_t kMost = 1u << 30;
  if (file.size() < kHeaderBytes || file.substr(12, 4) != "IHDR") {
    return InvalidArgument("the PNG picture cannot be read: it has no header");
  }
  const uint32_t width = BigEndian(file.data() + kWidth);
  const uint32_t height = BigEndian(file.data() + kWidth + 4);
  return PictureSize{static_cast<int>(width < kMost ? width : kMost),
                     static_cast<int>(height < kMost ? height : kMost)};
}

Result<Pixels> DecodePng(std::string_view file, const PictureLimits& limits, std::string* exif) {
  REPRISE_ASSIGN(const PictureSize size, ReadPngSize(file));
  REPRISE_TRY(CheckPictureSize(size, limits));
  Png png;
  PngReader& reader = png.reader();
  if (!Create(&reader, file) || !ReadHeader(&reader, limits)) return png.Damaged();
  Pixels pixels{size.width, size.height, {}};
  const size_t row_bytes = static_cast<size_t>(size.width) * 3;
  pixels.rgb.resize(row_bytes * static_cast<size_t>(size.height));
  std::vector<png_bytep> rows(static_cast<size_t>(size.height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = pixels.rgb.data() + y * row_bytes;
  if (!ReadRows(&reader, rows.data(), row_bytes)) return png.Damaged();
  png_uint_32 exif_bytes = 0;
  png_bytep exif_data = nullptr;
  if (png_get_eXIf_1(reader.png, reader.info, &exif_bytes, &exif_data) != 0 &&
      exif_data != nullptr) {
    exif->assign(reinterpret_cast<const char*>(exif_data), exif_bytes);
  }
  return pixels;
}

}  // namespace reprise
