//! Sizes and steps of a convolution.

use douse_core::{Error, Result};

/// A convolution over dense operands: input [batch, groups, in_channels, input...], weight [groups, out_channels, in_channels,
/// kernel...], output [batch, groups, out_channels, output...]. Channels are those of one group; there are three spatial
/// dimensions, of which the first ones may have size 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub batch: usize,
    pub groups: usize,
    pub in_channels: usize,
    pub out_channels: usize,
    pub input: [usize; 3],
    pub output: [usize; 3],
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    /// Zeros before the first element; negative where elements are left out.
    pub padding: [isize; 3],
    pub dilation: [usize; 3],
}

impl Geometry {
    /// Elements of the kernel.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Products that one output element sums.
    pub fn depth(&self) -> usize {
        self.in_channels * self.taps()
    }

    /// Elements of one channel of the input.
    pub fn input_plane(&self) -> usize {
        self.input.iter().product()
    }

    /// Elements of one channel of the output.
    pub fn output_plane(&self) -> usize {
        self.output.iter().product()
    }

    /// The same convolution with dimensions that the kernel does not touch made one: a 1x1 kernel sees one long row.
    pub fn collapsed(mut self) -> Geometry {
        let plain = |g: &Geometry, d: usize| {
            g.kernel[d] == 1 && g.stride[d] == 1 && g.padding[d] == 0 && g.input[d] == g.output[d]
        };
        for d in [1, 0] {
            // Dimensions after `d` have been moved into the last one.
            if !(plain(&self, d) && plain(&self, 2)) {
                break;
            }
            for sizes in [&mut self.input, &mut self.output] {
                sizes[2] *= sizes[d];
                sizes[d] = 1;
            }
        }
        self
    }

    /// From the operands' sizes, which must agree.
    pub fn new(
        input: &[usize],
        weight: &[usize],
        output: &[usize],
        bias: Option<&[usize]>,
        stride: &[i64],
        padding: &[i64],
        dilation: &[i64],
        groups: i64,
        transposed: bool,
    ) -> Result<Geometry> {
        let fault =
            |what: &str| Error::internal(format!("a convolution of {input:?} with {weight:?} into {output:?}: {what}"));
        let spatial = stride.len();
        let groups = usize::try_from(groups).ok().filter(|g| *g > 0).ok_or_else(|| fault("groups must be positive"))?;
        let ranks = [input.len(), weight.len(), output.len(), padding.len() + 2, dilation.len() + 2];
        if !(1..=3).contains(&spatial) || ranks.iter().any(|rank| *rank != spatial + 2) {
            return Err(fault("1 to 3 spatial dimensions, the same for all, were expected"));
        }
        // The weight of a transposed convolution has the input's channels first, and those of one group of outputs second.
        let (in_channels, out_channels) =
            if transposed { (weight[0] / groups, weight[1]) } else { (weight[1], weight[0] / groups) };
        let agree = input[0] == output[0]
            && input[1] == in_channels * groups
            && output[1] == out_channels * groups
            && weight[0].is_multiple_of(groups)
            && bias.is_none_or(|sizes| *sizes == [output[1]]);
        if !agree {
            return Err(fault("the channels, or the bias, do not agree"));
        }
        let mut geometry = Geometry {
            batch: input[0],
            groups,
            in_channels,
            out_channels,
            input: [1; 3],
            output: [1; 3],
            kernel: [1; 3],
            stride: [1; 3],
            padding: [0; 3],
            dilation: [1; 3],
        };
        for i in 0..spatial {
            let d = 3 - spatial + i;
            let step = |x: i64| usize::try_from(x).ok().filter(|x| *x > 0);
            geometry.input[d] = input[2 + i];
            geometry.output[d] = output[2 + i];
            geometry.kernel[d] = weight[2 + i];
            geometry.stride[d] = step(stride[i]).ok_or_else(|| fault("strides must be positive"))?;
            geometry.dilation[d] = step(dilation[i]).ok_or_else(|| fault("dilations must be positive"))?;
            geometry.padding[d] = padding[i] as isize;
        }
        Ok(geometry)
    }

    /// Where along dimension `d` the kernel element `tap` meets the input for output element `out`; may lie outside.
    pub fn position(&self, d: usize, out: usize, tap: usize) -> isize {
        (out * self.stride[d]) as isize - self.padding[d] + (tap * self.dilation[d]) as isize
    }

    /// The same as an index, where it lies inside the input.
    pub fn inside(&self, d: usize, out: usize, tap: usize) -> Option<usize> {
        usize::try_from(self.position(d, out, tap)).ok().filter(|i| *i < self.input[d])
    }

    /// Of `len` outputs in a row whose first meets the input at `first`, those that meet it inside.
    pub fn inside_run(&self, first: isize, len: usize) -> std::ops::Range<usize> {
        let (step, size) = (self.stride[2], self.input[2] as isize);
        let from = if first < 0 { first.unsigned_abs().div_ceil(step) } else { 0 };
        let to = if size > first { ((size - first) as usize).div_ceil(step) } else { 0 };
        from.min(len)..to.min(len).max(from.min(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_lie_inside_the_input() {
        let plain = |stride, input| Geometry {
            batch: 1,
            groups: 1,
            in_channels: 1,
            out_channels: 1,
            input: [1, 1, input],
            output: [1, 1, 1],
            kernel: [1; 3],
            stride: [1, 1, stride],
            padding: [0; 3],
            dilation: [1; 3],
        };
        for stride in 1..4 {
            for input in 0..6 {
                for first in -8..8 {
                    let run = plain(stride, input).inside_run(first, 5);
                    for j in 0..5 {
                        let at = first + (j * stride) as isize;
                        assert_eq!(run.contains(&j), (0..input as isize).contains(&at), "{stride} {input} {first} {j}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_pointwise_convolution_is_one_row() {
        let geometry =
            Geometry::new(&[1, 8, 5, 7], &[4, 8, 1, 1], &[1, 4, 5, 7], None, &[1, 1], &[0, 0], &[1, 1], 1, false);
        let geometry = geometry.unwrap().collapsed();
        assert_eq!((geometry.input, geometry.output), ([1, 1, 35], [1, 1, 35]));
        let rows =
            Geometry::new(&[1, 8, 5, 7], &[4, 8, 1, 3], &[1, 4, 5, 5], None, &[1, 1], &[0, 0], &[1, 1], 1, false);
        assert_eq!(rows.unwrap().collapsed().input, [1, 5, 7]);
    }

    #[test]
    fn disagreeing_sizes_are_refused() {
        let new = |weight: &[usize], stride: &[i64], groups| {
            Geometry::new(&[1, 4, 9], weight, &[1, 6, 9], None, stride, &[1], &[1], groups, false)
        };
        assert!(new(&[6, 2, 3], &[1], 2).is_ok());
        assert!(new(&[6, 4, 3], &[1], 2).is_err());
        assert!(new(&[6, 2, 3], &[0], 2).is_err());
        assert!(new(&[6, 2, 3], &[1, 1], 2).is_err());
        assert!(new(&[6, 2, 3], &[1], 0).is_err());
    }
}
