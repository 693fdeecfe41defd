// SPDX-License-Identifier: Apache-2.0
#include "text/split/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "text/unicode/classes.h"

namespace reprise {
namespace {

// How often one match may backtrack: in proportion to the text, as pre-tokenizers need.
constexpr uint32_t kMatchLimitBase = 100'000;
constexpr uint32_t kMatchLimitPerByte = 64;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kJitStackStart = 32 * 1024;
constexpr size_t kJitStackMax = 16 * 1024 * 1024;

bool IsNewer(uint32_t code) {
  const unicode::CodeRange* end = unicode::kNewerRanges + unicode::kNewerRangeCount;
  const unicode::CodeRange* found =
      std::lower_bound(unicode::kNewerRanges, end, code,
                       [](const unicode::CodeRange& r, uint32_t value) { return r.last < value; });
  return found != end && found->first <= code;
}

// A character of the class `kind` that every PCRE2 knows, in 3 or 4 bytes of UTF-8.
std::string_view OldRelative(uint8_t kind, uint32_t length) {
  static constexpr struct {
    uint8_t bits;
    std::string_view three, four;
  } kRelatives[] = {
      {unicode::kUpper, "\xE1\xB8\x80", "\xF0\x90\x90\x80"},        // U+1E00, U+10400
      {unicode::kLower, "\xE1\xB8\x81", "\xF0\x90\x90\xA8"},        // U+1E01, U+10428
      {unicode::kLetter, "\xE4\xB8\x80", "\xF0\xA0\x80\x80"},       // U+4E00, U+20000
      {unicode::kMark, "\xE0\xA4\x81", "\xF0\x91\x80\x81"},         // U+0901, U+11001
      {unicode::kNumber, "\xE0\xA5\xA6", "\xF0\x90\x92\xA0"},       // U+0966, U+104A0
      {unicode::kPunctuation, "\xE2\x80\xA0", "\xF0\x90\x84\x80"},  // U+2020, U+10100
      {unicode::kSymbol, "\xE2\x98\x80", "\xF0\x9F\x98\x80"},       // U+2600, U+1F600
  };
  for (const auto& relative : kRelatives) {
    if ((kind & relative.bits) != 0) return length == 3 ? relative.three : relative.four;
  }
  return {};
}

// `text` as PCRE2 may see it: itself, or a copy of the same length in `buffer`.
std::string_view Presentable(std::string_view text, std::string* buffer) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  bool copied = false;
  for (const char* at = begin; at < end;) {
    if (static_cast<uint8_t>(*at) < 0x80) {
      ++at;
      continue;
    }
    const unicode::DecodedChar c = unicode::DecodeChar(at, end);
    std::string_view shown;
    if (c.length == 1) {
      static constexpr char kSubstitute = static_cast<char>(unicode::kInvalidByte);
      shown = {&kSubstitute, 1};
    } else if (IsNewer(c.code)) {
      shown = OldRelative(unicode::ClassOf(c.code), c.length);
    }
    if (!shown.empty()) {
      if (!copied) buffer->assign(text);
      copied = true;
      buffer->replace(static_cast<size_t>(at - begin), shown.size(), shown);
    }
    at += c.length;
  }
  return copied ? std::string_view(*buffer) : text;
}

std::string ErrorText(int code) {
  PCRE2_UCHAR text[128] = {};
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

class Regex::Scratch {
 public:
  Scratch()
      : match_data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        jit_stack(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)) {
    CHECK(match_data != nullptr && context != nullptr);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (jit_stack != nullptr) pcre2_jit_stack_assign(context, nullptr, jit_stack);
  }
  ~Scratch() {
    pcre2_jit_stack_free(jit_stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match_data);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  pcre2_match_data* match_data;
  pcre2_match_context* context;
  pcre2_jit_stack* jit_stack;
  std::string buffer;
};

void Regex::ScratchDeleter::operator()(Scratch* scratch) const { delete scratch; }

Regex::ScratchPtr Regex::MakeScratch() { return ScratchPtr(new Scratch); }

Result<std::unique_ptr<Regex>> Regex::Compile(std::string_view pattern) {
  static constexpr size_t kPatternBytesMax = 64 * 1024;
  if (pattern.size() > kPatternBytesMax) {
    return Unimplemented("the pre-tokenizer pattern is " + std::to_string(pattern.size()) +
                         " bytes long, beyond the limit of 64 KiB");
  }
  REPRISE_ASSIGN(const std::string rewritten, RewriteForPcre2(pattern));
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  CHECK(context != nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int error = 0;
  size_t error_offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()), rewritten.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &error_offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr) {
    return Unimplemented("the pre-tokenizer pattern cannot be compiled (" + ErrorText(error) +
                         "): " + std::string(pattern));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where there is no JIT, the interpreter serves
  return std::unique_ptr<Regex>(new Regex(code));
}

Regex::~Regex() { pcre2_code_free(static_cast<pcre2_code*>(code_)); }

Status Regex::FindAll(std::string_view text, Scratch* scratch, std::vector<Span>* spans) const {
  CHECK(text.size() < (size_t{1} << 31));
  const auto* code = static_cast<const pcre2_code*>(code_);
  const std::string_view shown = Presentable(text, &scratch->buffer);
  const uint64_t limit = kMatchLimitBase + uint64_t{kMatchLimitPerByte} * text.size();
  pcre2_set_match_limit(scratch->context,
                        static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(shown.data());
  size_t gap = 0;
  size_t from = 0;
  while (from <= text.size()) {
    int found = pcre2_match(code, subject, shown.size(), from, PCRE2_NO_UTF_CHECK,
                            scratch->match_data, scratch->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code, subject, shown.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          scratch->match_data, scratch->context);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return ResourceExhausted("the pre-tokenizer pattern cannot split this text (" +
                               ErrorText(found) + ")");
    }
    const size_t* ends = pcre2_get_ovector_pointer(scratch->match_data);
    // \K may set the start anywhere; a match never reaches back over an earlier one.
    const size_t begin = std::max(ends[0], gap);
    const size_t end = std::max(ends[1], begin);
    if (gap < begin) {
      spans->push_back({static_cast<uint32_t>(gap), static_cast<uint32_t>(begin), false});
    }
    spans->push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end), true});
    gap = end;
    from = end;
    if (begin == end) {
      if (from >= text.size()) break;
      from += unicode::DecodeChar(shown.data() + from, shown.data() + shown.size()).length;
    }
  }
  if (gap < text.size()) {
    spans->push_back({static_cast<uint32_t>(gap), static_cast<uint32_t>(text.size()), false});
  }
  return OkStatus();
}

}  // namespace reprise
