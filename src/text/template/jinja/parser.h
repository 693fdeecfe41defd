// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "text/template/jinja/ast.h"

namespace reprise::jinja {

// Parses the template language of Jinja 3.1, as far as a template without a file system can use it,
// with the extensions of chat templates: break, continue and generation blocks. What is not
// supported (include, import, extends, block, autoescape) is an error that names it and its line.
//
// Limits: the source's size, the nesting of tags and of expressions.
constexpr size_t kSourceBytesMax = size_t{1} << 20;
constexpr int kNestingMax = 100;

Result<std::unique_ptr<const Template>> ParseTemplate(std::string_view source);

}  // namespace reprise::jinja
