// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "hub/net/stream.h"

namespace reprise::hub {

// TLS (1.2 or newer) over another stream. The certificate is checked, for `host` and against the
// authorities that the system trusts; SSL_CERT_FILE and SSL_CERT_DIR name others, as everywhere.
// There is no way to switch that off.
Result<std::unique_ptr<Stream>> OpenTls(std::unique_ptr<Stream> below, const std::string& host,
                                        const Patience& patience);

}  // namespace reprise::hub
