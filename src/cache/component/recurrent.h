// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/component/component.h"
#include "cache/pieces.h"
#include "state/spec.h"

namespace reprise {

using EntryId = Id<struct EntryTag>;  // something that can be evicted (policy/eviction_order.h)

// Recurrent keeps snapshots at exact positions. They are marks on the run of a node, not nodes of
// their own: taking one splits nothing, and a match that ends one token before a mark simply does
// not see it.
//
// An evicted snapshot leaves a mark without entry behind, so that a report can say "evicted".
// Marks of a node are ascending and lie in (begin, end].
class Recurrent : public Component {
 public:
  struct Mark {
    int32_t position = 0;
    EntryId entry;  // invalid: there was one, it was evicted
  };
  struct Place {
    NodeId node;
    Mark mark;
  };

  explicit Recurrent(RadixTree* tree) : tree_(tree) {}
  // The component for a model's recurrent state; null: it has none.
  static std::unique_ptr<Recurrent> Make(const StateSpec& spec, RadixTree* tree) {
    return spec.has_recurrent() ? std::make_unique<Recurrent>(tree) : nullptr;
  }

  int32_t Serve(const RadixTree::Path& path, int32_t limit) const override;
  // The snapshot at exactly that position of the path, if there is one.
  std::optional<Mark> Find(const RadixTree::Path& path, int32_t position) const;
  // The deepest mark of an evicted snapshot in (above, upto] of the path, or 0.
  int32_t FindEvicted(const RadixTree::Path& path, int32_t above, int32_t upto) const;

  // REQUIRES: position in (begin, end] of the node; no snapshot there.
  void Add(NodeId node, int32_t position, EntryId entry);
  // Leaves an evicted mark if `remember`.
  void Remove(NodeId node, int32_t position, bool remember);

  std::span<const Mark> marks(NodeId node) const;
  // The deepest snapshot of the node at or above `position`.
  std::optional<Mark> Deepest(NodeId node, int32_t position) const;
  // The snapshot next above `position` on the way from the node to the root.
  std::optional<Place> Previous(NodeId node, int32_t position) const;
  // The shallowest snapshot of the node behind `position`.
  std::optional<Mark> Next(NodeId node, int32_t position) const;

  void OnSplit(NodeId upper, NodeId lower) override;
  void OnRemove(NodeId node) override;
  size_t bytes() const override;
  Status CheckNode(NodeId node) const override;
  std::string Describe(NodeId node) const override;

  // Marks that a split has moved to another node: the entries' owner hears of it.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnEntryMoved(EntryId entry, NodeId node) = 0;
  };
  void set_owner(Owner* owner) { owner_ = owner; }

 private:
  static constexpr int kEvictedMarksMax = 8;  // per node

  struct Marks {
    std::vector<Mark> list;
    uint32_t snapshots = 0;  // marks with an entry
  };
  Marks& MarksOf(NodeId node);

  RadixTree* tree_;
  Owner* owner_ = nullptr;
  Pieces<Marks> marks_;  // by node
  size_t mark_count_ = 0;
};

}  // namespace reprise
