// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "events/publisher.h"

namespace reprise {

Result<EventAddress> EventAddress::Parse(std::string_view text) {
  const Status wrong =
      InvalidArgument("\"" + std::string(text) +
                      "\" is not an address for events; write tcp://127.0.0.1:5557, "
                      "or tcp://*:5557 to be heard everywhere");
  constexpr std::string_view kScheme = "tcp://";
  constexpr size_t kBytesMax = 256;
  if (!text.starts_with(kScheme) || text.size() > kBytesMax) return wrong;
  const std::string_view rest = text.substr(kScheme.size());
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return wrong;
  const std::string_view host = rest.substr(0, colon), port = rest.substr(colon + 1);
  uint16_t number = 0;
  const auto read = std::from_chars(port.data(), port.data() + port.size(), number);
  if (read.ec != std::errc() || read.ptr != port.data() + port.size() || number == 0) return wrong;
  if (host.find_first_of(" \t\r\n;/") != std::string_view::npos) return wrong;
  EventAddress address;
  address.text = text;
  address.loopback = host.starts_with("127.") || host == "[::1]" || host == "lo";
  return address;
}

}  // namespace reprise
