// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/json_writer.h"
#include "base/status.h"

namespace reprise::batches {

// The life of a batch: validating -> in_progress -> finalizing -> completed; or failed (nothing of
// it was run), cancelling -> cancelled, expired. The last four are ends.
struct Batch {
  std::string id;
  std::string tenant;
  std::string endpoint;
  std::string input_file_id;
  std::string output_file_id;  // empty: no line was answered
  std::string error_file_id;   // empty: no line was refused
  std::string completion_window = "24h";
  std::string status = "validating";
  std::string metadata = "null";  // JSON, as the client gave it
  std::string error;              // of one that failed
  int64_t error_line = 0;         // counted from 1; 0: of no line
  int64_t created_at = 0;
  int64_t in_progress_at = 0;
  int64_t expires_at = 0;
  int64_t ended_at = 0;
  int64_t total = 0;
  int64_t completed = 0;
  int64_t failed = 0;

  bool ended() const;
};

// OpenAI's object.
void WriteBatch(const Batch& batch, JsonWriter* json);

// The record on disk: the same and whose it is.
std::string FormatRecord(const Batch& batch);
Result<Batch> ParseRecord(std::string_view text);

// A line of the input: {"custom_id", "method": "POST", "url", "body": {...}}.
struct BatchLine {
  std::string custom_id;
  std::string body;
};
Result<BatchLine> ParseLine(std::string_view line, std::string_view endpoint);

// A line of the output, or of the errors.
std::string FormatAnswer(const std::string& batch_id, const std::string& custom_id, int status,
                         const std::string& request_id, const std::string& body);
// The custom_id of such a line; nothing if it was cut off.
std::string AnsweredId(std::string_view line);

}  // namespace reprise::batches
