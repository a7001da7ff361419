//! Autocast on the CPU: which operators of a region compute in which dtype (the documentation of `torch.amp` lists them).

use douse_core::{DType, Result};

use super::args::{Args, Val};
use super::importer::Importer;
use super::promote::promote_types;

/// Operators that compute in the region's dtype. Those in the second line are sums of products that PyTorch takes apart into such.
const LOWER: &str = "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution mm bmm baddbmm addmm
    addbmm linear matmul linalg_vecdot prelu scaled_dot_product_attention
    einsum tensordot linalg_matmul chain_matmul linalg_multi_dot";

/// Operators that compute in float32.
const FULL: &str = "avg_pool3d max_pool3d adaptive_avg_pool3d adaptive_max_pool3d max_unpool2d max_unpool3d binary_cross_entropy
    binary_cross_entropy_with_logits grid_sampler grid_sampler_2d grid_sampler_3d polar prod quantile nanquantile stft cdist trace
    view_as_complex inverse pinverse reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d mse_loss
    cosine_embedding_loss nll_loss nll_loss2d nll_loss_nd hinge_embedding_loss poisson_nll_loss smooth_l1_loss cross_entropy_loss
    l1_loss huber_loss margin_ranking_loss soft_margin_loss triplet_margin_loss multi_margin_loss multilabel_margin_loss ctc_loss kl_div
    fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn fft_rfft fft_irfft fft_rfft2 fft_irfft2 fft_rfftn fft_irfftn fft_hfft fft_ihfft
    linalg_cond linalg_matrix_rank linalg_solve linalg_cholesky linalg_inv linalg_svd linalg_svdvals linalg_eigh linalg_eigvalsh linalg_qr";

/// Operators that bring their tensors to the widest of their dtypes.
const PROMOTE: &str = "cat stack index_copy";

/// Operators made of others, some of which change what they compute in.
const MIXED: &str = "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell bilinear inner pad matrix_exp linalg_matrix_exp
    linalg_matrix_power matrix_power _native_multi_head_attention";

fn lists(table: &str, name: &str) -> bool {
    table.split_whitespace().any(|entry| entry == name)
}

impl Importer {
    /// The arguments as an operator gets them in a region where autocast brings products to `lower`.
    ///
    /// # Errors
    /// For an operator whose parts autocast treats differently.
    pub(super) fn autocast_arguments(&mut self, a: Args, lower: DType) -> Result<Args> {
        let name = a.target.strip_prefix("aten.").and_then(|n| n.split('.').next()).unwrap_or_default();
        let dtype = if lists(LOWER, name) {
            lower
        } else if lists(FULL, name) {
            DType::F32
        } else if lists(PROMOTE, name) {
            let mut widest = lower;
            for (_, val) in &a.values {
                for t in tensors(val) {
                    let dtype = self.dtype_of(t);
                    widest = if dtype.is_float() { promote_types(widest, dtype) } else { widest };
                }
            }
            widest
        } else if lists(MIXED, name) {
            return Err(a.unsupported("use within a region with autocast on"));
        } else {
            return Ok(a);
        };
        let mut values = Vec::with_capacity(a.values.len());
        for (name, val) in &a.values {
            values.push((name.clone(), self.autocast(val, dtype)?));
        }
        Ok(Args { target: a.target, values })
    }

    /// A tensor, or the tensors of a list, in this dtype; what is not float, or float64, stays.
    fn autocast(&mut self, val: &Val, dtype: DType) -> Result<Val> {
        Ok(match val {
            Val::Tensor(t) if self.dtype_of(*t).is_float() && ![DType::F64, dtype].contains(&self.dtype_of(*t)) => {
                let value = self.read(*t)?;
                let value = self.b.cast(value, dtype);
                Val::Tensor(self.new_tensor(value, dtype))
            }
            Val::List(list) => Val::List(list.iter().map(|v| self.autocast(v, dtype)).collect::<Result<_>>()?),
            other => other.clone(),
        })
    }
}

/// The tensors of an argument.
fn tensors(val: &Val) -> Vec<super::tensor::Tensor> {
    match val {
        Val::Tensor(t) => vec![*t],
        Val::List(list) => list.iter().flat_map(tensors).collect(),
        _ => vec![],
    }
}
