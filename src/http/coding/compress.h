// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "http/message.h"

namespace reprise::http {

// Compresses the body of an answer with gzip where the client takes that, the body is text and
// is worth the work: at least 8 KiB, at most `bytes_max`. Streams stay as they are: their pieces
// are small and wanted at once.
void Compress(const Request& request, size_t bytes_max, Response* response);

}  // namespace reprise::http
