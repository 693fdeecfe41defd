// SPDX-License-Identifier: Apache-2.0
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

// (jpeglib.h wants cstdio before it.)
#include <jerror.h>
#include <jpeglib.h>

#include "picture/formats.h"

// libjpeg-turbo reports errors by longjmp: the functions that it may leave so have nothing to
// destroy.
namespace reprise {
namespace {

// A file that is being read. Plain: errors jump over its users.
struct JpegReader {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char error[JMSG_LENGTH_MAX] = {};
  int scans_max = 0;
};

JpegReader* ReaderOf(j_common_ptr jpeg) { return static_cast<JpegReader*>(jpeg->client_data); }

void Fail(j_common_ptr jpeg) {
  JpegReader* reader = ReaderOf(jpeg);
  (*jpeg->err->format_message)(jpeg, reader->error);
  std::longjmp(reader->jump, 1);
}

// Damage inside is shown as other programs show it; a file that ends too soon is refused.
void Note(j_common_ptr jpeg, int level) {
  if (level >= 0 || jpeg->err->msg_code != JWRN_JPEG_EOF) return;
  JpegReader* reader = ReaderOf(jpeg);
  std::snprintf(reader->error, sizeof(reader->error), "it is cut off");
  std::longjmp(reader->jump, 1);
}

// A small file can have thousands of scans of a large picture.
void CountScans(j_common_ptr jpeg) {
  JpegReader* reader = ReaderOf(jpeg);
  if (reader->jpeg.input_scan_number <= reader->scans_max) return;
  std::snprintf(reader->error, sizeof(reader->error), "it has more than %d scans",
                reader->scans_max);
  std::longjmp(reader->jump, 1);
}

bool ReadHeader(JpegReader* reader, std::string_view file) {
  constexpr unsigned kMarkerBytesMax = 0xFFFF;
  if (setjmp(reader->jump) != 0) return false;
  jpeg_create_decompress(&reader->jpeg);
  reader->jpeg.client_data = reader;
  jpeg_mem_src(&reader->jpeg, reinterpret_cast<const unsigned char*>(file.data()),
               static_cast<unsigned long>(file.size()));  // NOLINT(google-runtime-int): theirs
  jpeg_save_markers(&reader->jpeg, JPEG_APP0 + 1, kMarkerBytesMax);
  (void)jpeg_read_header(&reader->jpeg, TRUE);
  return true;
}

// rgb: [height, width, 3]
bool ReadRows(JpegReader* reader, uint8_t* rgb) {
  if (setjmp(reader->jump) != 0) return false;
  jpeg_decompress_struct* jpeg = &reader->jpeg;
  jpeg->out_color_space = JCS_RGB;
  reader->progress.progress_monitor = CountScans;
  jpeg->progress = &reader->progress;
  (void)jpeg_start_decompress(jpeg);
  const size_t row_bytes = static_cast<size_t>(jpeg->output_width) * 3;
  while (jpeg->output_scanline < jpeg->output_height) {
    JSAMPROW row = rgb + jpeg->output_scanline * row_bytes;
    (void)jpeg_read_scanlines(jpeg, &row, 1);
  }
  (void)jpeg_finish_decompress(jpeg);
  return true;
}

// Owns what libjpeg allocates.
class Jpeg {
 public:
  Jpeg() {
    std::memset(&reader_.jpeg, 0, sizeof(reader_.jpeg));
    std::memset(&reader_.progress, 0, sizeof(reader_.progress));
    reader_.jpeg.err = jpeg_std_error(&reader_.errors);
    reader_.errors.error_exit = Fail;
    reader_.errors.emit_message = Note;
    reader_.jpeg.client_data = &reader_;
  }
  ~Jpeg() { jpeg_destroy_decompress(&reader_.jpeg); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  JpegReader& reader() { return reader_; }
  Status Damaged() const {
    return InvalidArgument(std::string("the JPEG picture cannot be read: ") + reader_.error);
  }

 private:
  JpegReader reader_;
};

int ScansMax(int64_t pixels) {
  constexpr int64_t kWork = int64_t{1} << 30;  // pixels of all scans
  const int64_t scans = kWork / pixels;
  return static_cast<int>(scans < 20 ? 20 : scans > 500 ? 500 : scans);
}

}  // namespace

Result<PictureSize> ReadJpegSize(std::string_view file) {
  Jpeg jpeg;
  if (!ReadHeader(&jpeg.reader(), file)) return jpeg.Damaged();
  const jpeg_decompress_struct& header = jpeg.reader().jpeg;
  return PictureSize{static_cast<int>(header.image_width), static_cast<int>(header.image_height)};
}

Result<Pixels> DecodeJpeg(std::string_view file, const PictureLimits& limits, std::string* exif) {
  Jpeg jpeg;
  JpegReader& reader = jpeg.reader();
  if (!ReadHeader(&reader, file)) return jpeg.Damaged();
  const PictureSize size = {static_cast<int>(reader.jpeg.image_width),
                            static_cast<int>(reader.jpeg.image_height)};
  REPRISE_TRY(CheckPictureSize(size, limits));
  if (reader.jpeg.jpeg_color_space == JCS_CMYK || reader.jpeg.jpeg_color_space == JCS_YCCK) {
    return InvalidArgument(
        "the JPEG picture has the colours of a printer (CMYK), which is not supported; convert it "
        "to RGB");
  }
  constexpr std::string_view kExif("Exif\0\0", 6);
  for (const jpeg_marker_struct* marker = reader.jpeg.marker_list; marker != nullptr;
       marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (data.starts_with(kExif) && exif->empty()) *exif = data.substr(kExif.size());
  }
  const int64_t count = int64_t{size.width} * size.height;
  reader.scans_max = ScansMax(count);
  Pixels pixels{size.width, size.height, {}};
  pixels.rgb.resize(static_cast<size_t>(count) * 3);
  if (!ReadRows(&reader, pixels.rgb.data())) return jpeg.Damaged();
  return pixels;
}

}  // namespace reprise
