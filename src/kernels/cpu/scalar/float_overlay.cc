// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/table.h"
#include "kernels/reference/activation.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/norm.h"
#include "kernels/reference/recurrent.h"
#include "kernels/reference/rope.h"
#include "kernels/reference/scan.h"

namespace reprise::cpu {

void OverlayScalarFloat(KernelTable* table) {
  table->rms_norm = reference::RmsNorm;
  table->l2_norm = reference::L2Norm;
  table->layer_norm = reference::LayerNorm;
  table->swiglu = reference::SwiGlu;
  table->clamped_swiglu = reference::ClampedSwiGlu;
  table->silu = reference::Silu;
  table->sigmoid_mul = reference::SigmoidMul;
  table->add = reference::Add;
  table->mul = reference::Mul;
  table->scale = reference::Scale;
  table->scale_add = reference::ScaleAdd;
  table->geglu = reference::GeGlu;
  table->gelu = reference::Gelu;
  table->gelu_erf = reference::GeluErf;
  table->relu_squared = reference::ReluSquared;
  table->softcap = reference::Softcap;
  table->softplus = reference::Softplus;
  table->sigmoid = reference::Sigmoid;
  table->lerp = reference::Lerp;
  table->rwkv_decay = reference::RwkvDecay;
  table->dot_scale_add = reference::DotScaleAdd;
  table->exp = reference::Exp;
  table->softmax = reference::Softmax;
  table->rope = reference::Rope;
  table->rope_angles = reference::RopeAngles;
  table->multiply_adds = reference::MultiplyAdds;
  table->f32_to_f16 = reference::F32ToF16;
  table->f16_to_f32 = reference::F16ToF32;
  table->bf16_to_f32 = reference::BF16ToF32;
  table->f32_to_bf16 = reference::F32ToBF16;
  table->attend_f32 = reference::AttendF32;
  table->attend_f16 = reference::AttendF16;
  table->attend_bf16 = reference::AttendBF16;
  table->attend_q8_0 = reference::AttendQ8;
  table->weigh_keys_f32 = reference::WeighKeysF32;
  table->weigh_keys_f16 = reference::WeighKeysF16;
  table->weigh_keys_bf16 = reference::WeighKeysBF16;
  table->weigh_keys_q8_0 = reference::WeighKeysQ8;
  table->store_keys_f32 = reference::StoreKeysF32;
  table->store_keys_f16 = reference::StoreKeysF16;
  table->store_keys_bf16 = reference::StoreKeysBF16;
  table->store_keys_q8_0 = reference::StoreKeysQ8;
  table->store_values_q8_0 = reference::StoreValuesQ8;
  table->attend_merge = reference::AttendMerge;
  table->short_conv = reference::ShortConv;
  table->delta_gates = reference::DeltaGates;
  table->gated_delta = reference::GatedDelta;
  table->scan.key_decay_delta = reference::KeyDecayDelta;
  table->scan.ssd = reference::Ssd;
  table->scan.wkv7 = reference::Wkv7;
  table->scan.selective = reference::Selective;
  table->scan.rg_lru = reference::RgLru;
  table->scan.decay = reference::Decay;
  table->scan.ssd_gates = reference::SsdGates;
}

}  // namespace reprise::cpu
