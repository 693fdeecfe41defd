// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "api/ops/trace.h"

namespace reprise::cli {

// Replies as OpenTelemetry's spans: an ExportTraceServiceRequest of OTLP 1.0 in JSON, as
// POST /v1/traces takes it. A reply is a span of kind SERVER with the attributes that OpenTelemetry
// names for generative models; its phases are the spans below it.
std::string FormatOtlp(std::span<const api::ReplyTrace> traces, const std::string& service_name);

}  // namespace reprise::cli
