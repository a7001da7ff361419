//! Convolutions in one to three dimensions.
//!
//! Float32 runs as products of weights and panels of the input ([`product`]); depthwise convolutions, and others with few channels a
//! group, as sums over padded lines ([`flat`]). 16-bit floats are widened to float32 and rounded once; other dtypes take the loops. A transposed convolution
//! becomes several ordinary ones ([`transposed`]).

pub mod geometry;

mod direct;
mod flat;
mod panel;
mod product;
mod transposed;

use bytemuck::Pod;
use douse_core::Result;

use super::element::{Float, Number};
use super::simd::vectorised;
use super::tensor::{Tensor, TensorMut};
use super::tile::Layout;
use super::work::Work;
use geometry::Geometry;

/// Steps of a convolution, as [`douse_program::library::Convolution`] has them.
#[derive(Clone, Copy, Debug)]
pub struct Steps<'a> {
    pub stride: &'a [i64],
    pub padding: &'a [i64],
    pub dilation: &'a [i64],
    pub groups: i64,
    pub transposed: bool,
}

/// The operands of a convolution.
pub struct Operands<'a, T> {
    pub input: Tensor<'a, T>,
    pub weight: Tensor<'a, T>,
    pub bias: Option<Tensor<'a, T>>,
    pub out: TensorMut<'a, T>,
}

impl<T> Operands<'_, T> {
    fn geometry(&self, steps: &Steps) -> Result<Geometry> {
        Geometry::new(
            self.input.sizes(),
            self.weight.sizes(),
            self.out.sizes(),
            self.bias.as_ref().map(|bias| bias.sizes()),
            steps.stride,
            steps.padding,
            steps.dilation,
            steps.groups,
            steps.transposed,
        )
    }
}

/// A convolution of float32, float64, float16 or bfloat16.
pub fn convolve_float<T: ConvolveFloat>(operands: Operands<'_, T>, steps: &Steps, work: &Work) -> Result<()> {
    T::convolve(operands, steps, work)
}

/// A convolution of integers, which wrap.
pub fn convolve_int<T: Number>(operands: Operands<'_, T>, steps: &Steps, work: &Work) -> Result<()> {
    let geometry = operands.geometry(steps)?;
    let Operands { input, weight, bias, mut out } = operands;
    let (input, weight) = (input.dense(work.scratch), weight.dense(work.scratch));
    let bias = bias.map(|bias| bias.dense(work.scratch));
    out.write(work.scratch, |out| {
        dense(&geometry, steps.transposed, &weight, out, work, |g, weight, out| {
            direct::convolve(g, &input, weight, bias.as_deref(), out, work);
        })
    })
}

/// Runs `convolve` once, or for each phase of a transposed convolution.
fn dense<T: Pod>(
    geometry: &Geometry,
    transposed: bool,
    weight: &[T],
    out: &mut [T],
    work: &Work,
    convolve: impl Fn(&Geometry, &[T], &mut [T]),
) -> Result<()> {
    if transposed {
        transposed::by_phases(geometry, weight, out, work.scratch, |g, weight, out| {
            convolve(g, weight, out);
            Ok(())
        })
    } else {
        convolve(&geometry.collapsed(), weight, out);
        Ok(())
    }
}

/// A float dtype and its way to convolve.
pub trait ConvolveFloat: Float {
    fn convolve(operands: Operands<'_, Self>, steps: &Steps, work: &Work) -> Result<()>;
}

impl ConvolveFloat for f64 {
    fn convolve(operands: Operands<'_, f64>, steps: &Steps, work: &Work) -> Result<()> {
        convolve_int(operands, steps, work)
    }
}

impl ConvolveFloat for f32 {
    fn convolve(operands: Operands<'_, f32>, steps: &Steps, work: &Work) -> Result<()> {
        let geometry = operands.geometry(steps)?;
        let Operands { input, weight, bias, mut out } = operands;
        let (input, weight) = (input.dense(work.scratch), weight.dense(work.scratch));
        let bias = bias.map(|bias| bias.dense(work.scratch));
        if !steps.transposed && geometry.groups == 1 && !flat::suits(&geometry) {
            // Channels last: the product comes out in that order.
            if let Some(out) = out.as_rotated_slice() {
                let g = geometry.collapsed();
                product::convolve(&g, &input, &weight, bias.as_deref(), out, Layout::Columns, work);
                return Ok(());
            }
        }
        out.write(work.scratch, |out| {
            dense(&geometry, steps.transposed, &weight, out, work, |g, weight, out| {
                convolve_f32(g, &input, weight, bias.as_deref(), out, work);
            })
        })
    }
}

fn convolve_f32(g: &Geometry, input: &[f32], weight: &[f32], bias: Option<&[f32]>, out: &mut [f32], work: &Work) {
    if flat::suits(g) {
        flat::convolve(g, input, weight, bias, out, work);
    } else {
        product::convolve(g, input, weight, bias, out, Layout::Rows, work);
    }
}

macro_rules! through_float32 {
    ($($t:ty)*) => {$(
        impl ConvolveFloat for $t {
            fn convolve(operands: Operands<'_, $t>, steps: &Steps, work: &Work) -> Result<()> {
                let geometry = operands.geometry(steps)?;
                let Operands { input, weight, bias, mut out } = operands;
                let widen = |from: &Tensor<'_, $t>| {
                    let dense = from.dense(work.scratch);
                    let mut wide = work.scratch.take::<f32>(dense.len());
                    vectorised!(<$t>::widen(&dense, &mut wide));
                    wide
                };
                let (input, weight) = (widen(&input), widen(&weight));
                let bias = bias.as_ref().map(widen);
                let mut wide = work.scratch.take::<f32>(out.numel());
                dense(&geometry, steps.transposed, &weight, &mut wide, work, |g, weight, out| {
                    convolve_f32(g, &input, weight, bias.as_deref(), out, work);
                })?;
                out.write(work.scratch, |out| {
                    vectorised!(<$t>::narrow(&wide, out));
                    Ok(())
                })
            }
        }
    )*};
}

through_float32! { half::f16 half::bf16 }

#[cfg(test)]
mod tests {
    use super::super::check::{Random, close, strided};
    use super::super::element::Real;
    use super::super::scratch::Scratch;
    use super::*;
    use crate::threads::Threads;
    use half::{bf16, f16};

    struct Case {
        batch: usize,
        groups: usize,
        in_channels: usize,
        out_channels: usize,
        input: Vec<usize>,
        kernel: Vec<usize>,
        stride: Vec<i64>,
        padding: Vec<i64>,
        dilation: Vec<i64>,
        transposed: bool,
    }

    impl Case {
        fn random(random: &mut Random, round: usize) -> Case {
            let spatial = 1 + round % 3;
            let groups = [1, 1, 2, 3][random.below(4)];
            let channels = |random: &mut Random| [1, 1, 2, 5, 9][random.below(5)];
            let mut per =
                |low: usize, n: usize| -> Vec<usize> { (0..spatial).map(|_| low + random.below(n)).collect() };
            let input = per(1, if spatial == 1 { 70 } else { 9 });
            let kernel = per(1, 4);
            let signed = |x: Vec<usize>| -> Vec<i64> { x.iter().map(|x| *x as i64).collect() };
            let (stride, padding, dilation) = (signed(per(1, 3)), signed(per(0, 3)), signed(per(1, 3)));
            Case {
                batch: 1 + random.below(2),
                groups,
                in_channels: channels(random),
                out_channels: channels(random),
                input,
                kernel,
                stride,
                padding,
                dilation,
                transposed: round % 2 == 1,
            }
        }

        /// The sizes of the output, with one element more at the end where the input allows it; None where it would be empty.
        fn output(&self) -> Option<Vec<usize>> {
            (0..self.input.len())
                .map(|d| {
                    let span = self.dilation[d] * (self.kernel[d] as i64 - 1) + 1;
                    let size = if self.transposed {
                        (self.input[d] as i64 - 1) * self.stride[d] - 2 * self.padding[d] + span + self.stride[d] - 1
                    } else {
                        (self.input[d] as i64 + 2 * self.padding[d] - span).div_euclid(self.stride[d]) + 1
                    };
                    usize::try_from(size).ok().filter(|n| *n > 0)
                })
                .collect()
        }

        /// In float64 over dense operands with a loop for everything.
        fn naive(&self, input: &[f64], weight: &[f64], bias: &[f64], output: &[usize]) -> Vec<f64> {
            let (ins, outs) = (self.in_channels, self.out_channels);
            let count = |sizes: &[usize]| sizes.iter().product::<usize>();
            let index = |mut i: usize, sizes: &[usize]| -> Vec<usize> {
                let mut index = vec![0; sizes.len()];
                for d in (0..sizes.len()).rev() {
                    index[d] = i % sizes[d];
                    i /= sizes[d];
                }
                index
            };
            let flat = |index: &[usize], sizes: &[usize]| index.iter().zip(sizes).fold(0, |at, (i, n)| at * n + i);
            let (taps, in_plane, out_plane) = (count(&self.kernel), count(&self.input), count(output));
            let mut out = vec![0.0; self.batch * self.groups * outs * out_plane];
            for n in 0..self.batch {
                for channel in 0..self.groups * outs {
                    let (group, o) = (channel / outs, channel % outs);
                    let out = &mut out[(n * self.groups * outs + channel) * out_plane..][..out_plane];
                    out.fill(bias[channel]);
                    for c in 0..ins {
                        let input = &input[((n * self.groups + group) * ins + c) * in_plane..][..in_plane];
                        let kernel = if self.transposed { (group * ins + c) * outs + o } else { channel * ins + c };
                        let weight = &weight[kernel * taps..][..taps];
                        // The side that is walked over, and the one that the kernel reaches from it.
                        let (near, far) =
                            if self.transposed { (&self.input[..], output) } else { (output, &self.input[..]) };
                        for i in 0..count(near) {
                            for (k, w) in weight.iter().enumerate() {
                                let (at, tap) = (index(i, near), index(k, &self.kernel));
                                let reach: Option<Vec<usize>> = (0..near.len())
                                    .map(|d| {
                                        let x = at[d] as i64 * self.stride[d] - self.padding[d]
                                            + tap[d] as i64 * self.dilation[d];
                                        usize::try_from(x).ok().filter(|x| *x < far[d])
                                    })
                                    .collect();
                                if let Some(reach) = reach {
                                    let j = flat(&reach, far);
                                    if self.transposed { out[j] += input[i] * w } else { out[i] += input[j] * w }
                                }
                            }
                        }
                    }
                }
            }
            out
        }
    }

    fn check<T: Copy>(
        seed: u64,
        rounds: usize,
        tolerance: f64,
        make: impl Fn(f64) -> T,
        read: impl Fn(T) -> f64,
        convolve: impl Fn(Operands<'_, T>, &Steps, &Work) -> Result<()>,
    ) {
        let mut random = Random::new(seed);
        let scratch = Scratch::default();
        let threads = [Threads::one(), Threads::new(3).unwrap()];
        for round in 0..rounds {
            let case = Case::random(&mut random, round);
            let Some(output) = case.output() else { continue };
            let work = Work { scratch: &scratch, threads: &threads[round / 2 % 2] };
            let channels = [case.in_channels, case.out_channels];
            let sizes = |lead: [usize; 2], rest: &[usize]| [&lead[..], rest].concat();
            let lead = if case.transposed {
                [channels[0] * case.groups, channels[1]]
            } else {
                [channels[1] * case.groups, channels[0]]
            };
            let input =
                strided(&mut random, &sizes([case.batch, channels[0] * case.groups], &case.input), |r| make(r.float()));
            let weight = strided(&mut random, &sizes(lead, &case.kernel), |r| make(r.float()));
            let bias = strided(&mut random, &[channels[1] * case.groups], |r| make(r.float()));
            let mut out =
                strided(&mut random, &sizes([case.batch, channels[1] * case.groups], &output), |_| make(99.0));
            let with_bias = random.below(2) == 1;
            let operands = Operands {
                input: input.tensor(),
                weight: weight.tensor(),
                bias: with_bias.then(|| bias.tensor()),
                out: out.tensor_mut(),
            };
            let steps = Steps {
                stride: &case.stride,
                padding: &case.padding,
                dilation: &case.dilation,
                groups: case.groups as i64,
                transposed: case.transposed,
            };
            convolve(operands, &steps, &work).unwrap();
            let wide = |x: Vec<T>| -> Vec<f64> { x.into_iter().map(&read).collect() };
            let bias: Vec<f64> = if with_bias { wide(bias.dense()) } else { vec![0.0; channels[1] * case.groups] };
            let want = case.naive(&wide(input.dense()), &wide(weight.dense()), &bias, &output);
            close(&wide(out.dense()), &want, tolerance, &format!("round {round} {steps:?} of {:?}", input.sizes));
        }
    }

    fn check_float<T: ConvolveFloat>(seed: u64, rounds: usize, tolerance: f64) {
        let make = |x| T::from_wide(T::Wide::from_f64(x));
        check(seed, rounds, tolerance, make, |x| x.to_wide().to_f64(), convolve_float);
    }

    #[test]
    fn floats_in_all_shapes() {
        check_float::<f32>(1, 300, 1e-5);
        check_float::<f64>(2, 60, 1e-13);
        check_float::<f16>(3, 60, 1e-3);
        check_float::<bf16>(4, 60, 8e-3);
    }

    #[test]
    fn integers() {
        check(5, 60, 0.0, |x| (x * 7.0) as i32, |x| x as f64, convolve_int);
    }

    #[test]
    fn channels_last() {
        // The result of a tensor whose channels lie together is that of one whose channels are apart, for each way to convolve.
        let mut random = Random::new(7);
        let (scratch, threads) = (Scratch::default(), Threads::new(2).unwrap());
        let work = Work { scratch: &scratch, threads: &threads };
        for (groups, outs, transposed) in [(1, 20, false), (1, 70, false), (4, 8, false), (1, 12, true)] {
            let input: Vec<f32> = (0..2 * 8 * 5 * 7).map(|_| random.float() as f32).collect();
            let weight: Vec<f32> = (0..8 * outs * 9 / groups).map(|_| random.float() as f32).collect();
            let (input_sizes, out_sizes) = ([2, 8, 5, 7], [2, outs, 5, 7]);
            let weight_sizes = if transposed { [8, outs, 3, 3] } else { [outs, 8 / groups, 3, 3] };
            let weight_strides = super::super::tensor::contiguous_strides(&weight_sizes);
            let last = |channels: usize| [35 * channels as isize, 1, 7 * channels as isize, channels as isize];
            let first = |channels: usize| [35 * channels as isize, 35, 7, 1];
            let run = |input: &[f32], input_strides: [isize; 4], out_strides: [isize; 4]| {
                let mut out = vec![f32::NAN; 2 * outs * 35];
                let operands = Operands {
                    input: Tensor::new(input, 0, &input_sizes, &input_strides).unwrap(),
                    weight: Tensor::new(&weight, 0, &weight_sizes, &weight_strides).unwrap(),
                    bias: None,
                    out: TensorMut::new(&mut out, 0, &out_sizes, &out_strides).unwrap(),
                };
                let (ones, groups) = ([1, 1], groups as i64);
                let steps = Steps { stride: &ones, padding: &ones, dilation: &ones, groups, transposed };
                convolve_float(operands, &steps, &work).unwrap();
                let out = Tensor::new(&out, 0, &out_sizes, &out_strides).unwrap().dense(&scratch).to_vec();
                out.into_iter().map(f64::from).collect::<Vec<_>>()
            };
            let moved: Vec<f32> = (0..input.len()).map(|i| input[i / 280 * 280 + i % 8 * 35 + i / 8 % 35]).collect();
            let want = run(&input, first(8), first(outs));
            close(&run(&moved, last(8), last(outs)), &want, 1e-6, &format!("{groups} groups, {outs} channels"));
        }
    }

    #[test]
    fn wide_and_deep() {
        // More channels than a tile has, more outputs than a panel, more products than are packed at a time.
        let mut random = Random::new(6);
        let (scratch, threads) = (Scratch::default(), Threads::new(2).unwrap());
        let work = Work { scratch: &scratch, threads: &threads };
        let case = Case {
            batch: 1,
            groups: 1,
            in_channels: 130,
            out_channels: 131,
            input: vec![7, 9],
            kernel: vec![3, 3],
            stride: vec![1, 1],
            padding: vec![1, 1],
            dilation: vec![1, 1],
            transposed: false,
        };
        let input = strided(&mut random, &[1, 130, 7, 9], |r| r.float() as f32);
        let weight = strided(&mut random, &[131, 130, 3, 3], |r| r.float() as f32);
        let mut out = strided(&mut random, &[1, 131, 7, 9], |_| f32::NAN);
        let steps = Steps {
            stride: &case.stride,
            padding: &case.padding,
            dilation: &case.dilation,
            groups: 1,
            transposed: false,
        };
        let operands = Operands { input: input.tensor(), weight: weight.tensor(), bias: None, out: out.tensor_mut() };
        convolve_float(operands, &steps, &work).unwrap();
        let wide = |x: Vec<f32>| -> Vec<f64> { x.into_iter().map(f64::from).collect() };
        let want = case.naive(&wide(input.dense()), &wide(weight.dense()), &[0.0; 131], &[7, 9]);
        close(&wide(out.dense()), &want, 1e-5, "wide and deep");
    }
}
