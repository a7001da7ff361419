//! Times library steps on shapes of common models, on two threads: `cargo run --release -p douse-cpu --example library_bench`.
//!
//! Each line is a name, the best time of several runs in milliseconds, and the rate in GFLOP/s (for products of a vector GB/s).
//! With the argument `cpu` the steps run on one thread, and the time is the mean of what that thread spent on a core (on Linux), which
//! other programs disturb less.

use douse_core::Result;
use douse_cpu::Threads;
use douse_cpu::library::Scratch;
use douse_cpu::library::attention::{Attention, attention};
use douse_cpu::library::convolution::{ConvolveFloat, Operands, Steps, convolve_float};
use douse_cpu::library::element::Float;
use douse_cpu::library::matmul::matmul_float;
use douse_cpu::library::sort::{sort, topk};
use douse_cpu::library::tensor::{Tensor, TensorMut, contiguous_strides, numel};
use douse_cpu::library::work::Work;
use half::bf16;
use std::time::Instant;

/// A dense tensor of numbers between -1 and 1.
struct Dense<T> {
    data: Vec<T>,
    sizes: Vec<usize>,
    strides: Vec<isize>,
}

impl<T: Copy> Dense<T> {
    fn new(sizes: &[usize], make: impl Fn(f32) -> T) -> Dense<T> {
        let mut state = 1u32;
        let data = (0..numel(sizes)).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            make((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
        });
        Dense { data: data.collect(), sizes: sizes.to_vec(), strides: contiguous_strides(sizes) }
    }

    /// The same memory with the last two dimensions exchanged.
    fn transposed(mut self) -> Dense<T> {
        let rank = self.sizes.len();
        self.sizes.swap(rank - 2, rank - 1);
        self.strides.swap(rank - 2, rank - 1);
        self
    }

    fn tensor(&self) -> Result<Tensor<'_, T>> {
        Tensor::new(&self.data, 0, &self.sizes, &self.strides)
    }

    fn tensor_mut(&mut self) -> Result<TensorMut<'_, T>> {
        TensorMut::new(&mut self.data, 0, &self.sizes, &self.strides)
    }
}

/// Seconds that this thread has spent on a core.
fn core_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Runs `f` for a while and prints its time.
fn time(name: &str, work: f64, mut f: impl FnMut() -> Result<()>) -> Result<()> {
    f()?;
    let mut seconds = f64::INFINITY;
    let mut runs = 0;
    let start = Instant::now();
    if std::env::args().any(|arg| arg == "cpu") {
        let begin = core_seconds();
        while runs < 3 || core_seconds() - begin < 0.1 {
            f()?;
            runs += 1;
        }
        seconds = (core_seconds() - begin) / runs as f64;
    } else {
        while runs < 5 || start.elapsed().as_secs_f64() < 0.1 {
            let begin = Instant::now();
            f()?;
            seconds = seconds.min(begin.elapsed().as_secs_f64());
            runs += 1;
        }
    }
    println!("{name}\t{:.3}\t{:.1}", seconds * 1e3, work / seconds / 1e9);
    Ok(())
}

/// `out [m, n] = a [m, k] @ b`, with b stored [n, k] (as linear layers have it) or [k, n].
fn product<T: Float>(
    name: &str,
    [batch, m, k, n]: [usize; 4],
    weights: bool,
    make: impl Fn(f32) -> T + Copy,
    work: &Work,
) -> Result<()> {
    let a = Dense::new(&[batch, m, k], make);
    let b = if weights { Dense::new(&[batch, n, k], make).transposed() } else { Dense::new(&[batch, k, n], make) };
    let mut out = Dense::new(&[batch, m, n], make);
    let amount = if m == 1 { (k * n * size_of::<T>()) as f64 } else { 2.0 * (batch * m * k * n) as f64 };
    time(name, amount, || matmul_float(a.tensor()?, b.tensor()?, out.tensor_mut()?, work))
}

struct Conv {
    input: [usize; 2],
    out: usize,
    kernel: usize,
    stride: usize,
    groups: usize,
    transposed: bool,
}

fn convolution<T: ConvolveFloat>(conv: Conv, make: impl Fn(f32) -> T + Copy, work: &Work) -> Result<()> {
    let Conv { input: [channels, size], out, kernel, stride, groups, transposed } = conv;
    let padding = if kernel == stride { 0 } else { kernel / 2 };
    let out_size = if transposed {
        (size - 1) * stride + kernel - 2 * padding
    } else {
        (size + 2 * padding - kernel) / stride + 1
    };
    let input = Dense::new(&[1, channels, size, size], make);
    let weight = match transposed {
        true => Dense::new(&[channels, out / groups, kernel, kernel], make),
        false => Dense::new(&[out, channels / groups, kernel, kernel], make),
    };
    let bias = Dense::new(&[out], make);
    let mut result = Dense::new(&[1, out, out_size, out_size], make);
    let steps = Steps {
        stride: &[stride as i64; 2],
        padding: &[padding as i64; 2],
        dilation: &[1; 2],
        groups: groups as i64,
        transposed,
    };
    let positions = if transposed { size * size } else { out_size * out_size };
    let flops = 2 * positions * out * channels / groups * kernel * kernel;
    let kind = if transposed { "deconv" } else { "conv" };
    time(&format!("{kind} {channels}x{size} -> {out} k{kernel} s{stride} g{groups}"), flops as f64, || {
        let operands = Operands {
            input: input.tensor()?,
            weight: weight.tensor()?,
            bias: Some(bias.tensor()?),
            out: result.tensor_mut()?,
        };
        convolve_float(operands, &steps, work)
    })
}

fn attend(name: &str, [heads, key_heads, queries, keys, size]: [usize; 5], work: &Work) -> Result<()> {
    let query = Dense::new(&[1, heads, queries, size], |x| x);
    let key = Dense::new(&[1, key_heads, keys, size], |x| x);
    let value = Dense::new(&[1, key_heads, keys, size], |x| x);
    let mut out = Dense::new(&[1, heads, queries, size], |x| x);
    time(name, 4.0 * (heads * queries * keys * size) as f64, || {
        let step = Attention {
            query: query.tensor()?,
            key: key.tensor()?,
            value: value.tensor()?,
            mask: None,
            out: out.tensor_mut()?,
            scale: 0.1,
            causal: false,
        };
        attention(step, work)
    })
}

/// The convolutions of ResNet-50 as channels, size, channels out, kernel, stride; and others.
const CONVOLUTIONS: [(usize, usize, usize, usize, usize, usize, bool); 31] = [
    (3, 224, 64, 7, 2, 1, false),
    (64, 56, 64, 1, 1, 1, false),
    (64, 56, 64, 3, 1, 1, false),
    (64, 56, 256, 1, 1, 1, false),
    (256, 56, 64, 1, 1, 1, false),
    (256, 56, 128, 1, 1, 1, false),
    (128, 56, 128, 3, 2, 1, false),
    (128, 28, 512, 1, 1, 1, false),
    (256, 56, 512, 1, 2, 1, false),
    (512, 28, 128, 1, 1, 1, false),
    (128, 28, 128, 3, 1, 1, false),
    (512, 28, 256, 1, 1, 1, false),
    (256, 28, 256, 3, 2, 1, false),
    (256, 14, 1024, 1, 1, 1, false),
    (512, 28, 1024, 1, 2, 1, false),
    (1024, 14, 256, 1, 1, 1, false),
    (256, 14, 256, 3, 1, 1, false),
    (1024, 14, 512, 1, 1, 1, false),
    (512, 14, 512, 3, 2, 1, false),
    (512, 7, 2048, 1, 1, 1, false),
    (1024, 14, 2048, 1, 2, 1, false),
    (2048, 7, 512, 1, 1, 1, false),
    (512, 7, 512, 3, 1, 1, false),
    (3, 224, 768, 16, 16, 1, false),
    (32, 112, 32, 3, 1, 32, false),
    (512, 14, 512, 3, 1, 512, false),
    (144, 56, 144, 3, 2, 144, false),
    (128, 56, 128, 3, 1, 32, false),
    (256, 14, 128, 4, 2, 1, true),
    (512, 14, 256, 2, 2, 1, true),
    (64, 32, 3, 3, 1, 1, false),
];

fn main() -> Result<()> {
    let scratch = Scratch::default();
    let alone = std::env::args().any(|arg| arg == "cpu");
    let threads = Threads::new(if alone { 1 } else { 2 })?;
    let work = &Work { scratch: &scratch, threads: &threads };
    for (channels, size, out, kernel, stride, groups, transposed) in CONVOLUTIONS {
        convolution(Conv { input: [channels, size], out, kernel, stride, groups, transposed }, |x| x, work)?;
    }
    product("matmul 197x768x3072", [1, 197, 768, 3072], true, |x| x, work)?;
    product("matmul 197x3072x768", [1, 197, 3072, 768], true, |x| x, work)?;
    product("matmul 197x768x768", [1, 197, 768, 768], true, |x| x, work)?;
    product("matmul 12x197x64x197", [12, 197, 64, 197], true, |x| x, work)?;
    product("matmul 4x4096x4096", [1, 4, 4096, 4096], true, |x| x, work)?;
    product("matmul bf16 197x768x3072", [1, 197, 768, 3072], true, bf16::from_f32, work)?;
    for size in [64, 128, 256, 512, 1024, 2048] {
        for stored in [false, true] {
            let name = |dtype: &str| format!("matmul {dtype} {size}x{size}x{size}{}", if stored { " NK" } else { "" });
            product(&name("f32"), [1, size, size, size], stored, |x| x, work)?;
            product(&name("f64"), [1, size, size, size], stored, f64::from, work)?;
        }
    }
    product("matmul 1024x64x1024", [1, 1024, 64, 1024], false, |x| x, work)?;
    product("matmul f64 8x2048x2048", [1, 8, 2048, 2048], true, f64::from, work)?;
    product("matvec NK 4096x14336", [1, 1, 4096, 14336], true, |x| x, work)?;
    product("matvec KN 4096x14336", [1, 1, 4096, 14336], false, |x| x, work)?;
    product("matvec NK bf16 4096x14336", [1, 1, 4096, 14336], true, bf16::from_f32, work)?;
    product("matvec NK 512x512", [1, 1, 512, 512], true, |x| x, work)?;
    attend("attention 12x197x64", [12, 12, 197, 197, 64], work)?;
    attend("attention 8x1024x64", [8, 8, 1024, 1024, 64], work)?;
    attend("attention decode 32/8 1x2048x128", [32, 8, 1, 2048, 128], work)?;
    let rows = Dense::new(&[64, 4096], |x| x);
    let (mut values, mut indices) = (Dense::new(&[64, 4096], |x| x), Dense::new(&[64, 4096], |_| 0i64));
    time("sort 64x4096", 0.0, || sort(rows.tensor()?, values.tensor_mut()?, indices.tensor_mut()?, false, work))?;
    let (mut values, mut indices) = (Dense::new(&[64, 50], |x| x), Dense::new(&[64, 50], |_| 0i64));
    time("topk 64x4096 k50", 0.0, || topk(rows.tensor()?, values.tensor_mut()?, indices.tensor_mut()?, true, work))
}
