//! Whether an output is the recorded answer.

use douse::{DType, HostTensor, Result, Value};
use douse_core::{Scalar, element};
use serde::Serialize;

use super::case::{Arg, Case, Check};

/// What is wrong with an output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub message: String,
    /// The largest error; absent where there is no number.
    pub error: Option<f64>,
    /// Where it is.
    pub index: Option<Vec<usize>>,
}

impl Difference {
    fn of_kind(message: String) -> Difference {
        Difference { message, error: None, index: None }
    }
}

/// Compares an output with what is recorded; `None` when it is right.
pub fn compare(case: &Case, arg: &Arg, got: &Value) -> Result<Option<Difference>> {
    let want = case.value(arg)?;
    let (want, got) = match (&want, got) {
        (Value::Tensor(want), Value::Tensor(got)) => (want, got),
        (want, got) => {
            let same = plain(want, got);
            return Ok((!same).then(|| Difference::of_kind(format!("{got}, expected {want}"))));
        }
    };
    if got.dtype() != want.dtype() || got.sizes() != want.sizes() {
        let message = format!("{} {:?}, expected {} {:?}", got.dtype(), got.sizes(), want.dtype(), want.sizes());
        return Ok(Some(Difference::of_kind(message)));
    }
    let (wanted, gotten) = (element::elements(want), element::elements(got));
    let right = |want: Scalar, got: Scalar| match arg.rtol {
        Some(rtol) => close(want, got, rtol, arg.atol),
        None => exactly(want, got),
    };
    if wanted.iter().zip(&gotten).all(|(want, got)| right(*want, *got)) {
        return Ok(None);
    }
    if arg.rtol.is_some()
        && let Some(key) = &arg.truth
        && within_truth(&element::elements(case.tensor(key)?), &wanted, &gotten)
    {
        return Ok(None);
    }
    Ok(Some(largest(want, &wanted, &gotten, &right)))
}

/// Compares two tensors elementwise, relatively; `None` where they are alike.
pub fn alike(want: &HostTensor, got: &HostTensor, rtol: f64) -> Option<Difference> {
    if got.dtype() != want.dtype() || got.sizes() != want.sizes() {
        return Some(Difference::of_kind(format!(
            "{} {:?} and {} {:?}",
            got.dtype(),
            got.sizes(),
            want.dtype(),
            want.sizes()
        )));
    }
    let (wanted, gotten) = (element::elements(want), element::elements(got));
    let right = |want: Scalar, got: Scalar| if rtol == 0.0 { exactly(want, got) } else { close(want, got, rtol, rtol) };
    let same = wanted.iter().zip(&gotten).all(|(want, got)| right(*want, *got));
    (!same).then(|| largest(want, &wanted, &gotten, &right))
}

/// As Python's `==` compares plain values; NaN equals NaN.
fn plain(want: &Value, got: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Int(v) => Some(*v as f64),
        Value::Float(v) => Some(*v),
        Value::Bool(v) => Some(f64::from(u8::from(*v))),
        _ => None,
    };
    match (want, got) {
        (Value::Int(want), Value::Int(got)) => want == got,
        (Value::Str(want), Value::Str(got)) => want == got,
        (Value::None, Value::None) => true,
        (want, got) => match (number(want), number(got)) {
            (Some(want), Some(got)) => want == got || (want.is_nan() && got.is_nan()),
            _ => false,
        },
    }
}

/// Bit-exact values: integers and bools, and floats recorded without a tolerance.
fn exactly(want: Scalar, got: Scalar) -> bool {
    match want {
        Scalar::Int(_) | Scalar::Bool(_) => want == got,
        // The same bits, so that NaN equals itself; zeros of either sign are equal.
        Scalar::Float(_) | Scalar::Complex(..) => want == got || equal(want.to_complex(), got.to_complex()),
    }
}

fn equal(want: (f64, f64), got: (f64, f64)) -> bool {
    want.0 == got.0 && want.1 == got.1
}

/// `torch.isclose` with `equal_nan`: equal, both NaN, or off by at most atol + rtol * |want|, which must be finite.
fn close(want: Scalar, got: Scalar, rtol: f64, atol: f64) -> bool {
    let (want, got) = (want.to_complex(), got.to_complex());
    let nan = |v: (f64, f64)| v.0.is_nan() || v.1.is_nan();
    if equal(want, got) || (nan(want) && nan(got)) {
        return true;
    }
    let error = (want.0 - got.0).hypot(want.1 - got.1);
    error.is_finite() && error <= atol + rtol * want.0.hypot(want.1)
}

/// Whether the largest error against the answer in float64 is at most twice the recorded answer's own. Both must be finite in
/// the same places.
fn within_truth(truth: &[Scalar], want: &[Scalar], got: &[Scalar]) -> bool {
    if truth.len() != want.len() {
        return false;
    }
    let error = |values: &[Scalar]| {
        let each = values.iter().zip(truth).map(|(v, t)| (v.to_f64() - t.to_f64()).abs());
        each.filter(|e| e.is_finite()).fold(0.0, f64::max)
    };
    let finite = want.iter().zip(got).all(|(want, got)| want.to_f64().is_finite() == got.to_f64().is_finite());
    finite && error(got) <= 2.0 * error(want)
}

/// The largest error among the elements that are not right, and its place.
fn largest(shape: &HostTensor, want: &[Scalar], got: &[Scalar], right: &dyn Fn(Scalar, Scalar) -> bool) -> Difference {
    let (mut worst, mut at, mut count) = (-1.0, 0, 0usize);
    for (i, (want, got)) in want.iter().zip(got).enumerate() {
        if right(*want, *got) {
            continue;
        }
        count += 1;
        let (w, g) = (want.to_complex(), got.to_complex());
        let error = (w.0 - g.0).hypot(w.1 - g.1);
        // A NaN or an infinity on one side only is worse than any number.
        let error = if error.is_nan() { f64::INFINITY } else { error };
        if error > worst {
            (worst, at) = (error, i);
        }
    }
    let index = unravel(at, shape.sizes());
    let (w, g) = (want.get(at), got.get(at));
    let show = |value: Option<&Scalar>| value.map_or(String::new(), |v| v.to_string());
    let message = format!(
        "largest error {worst:.3e} at {index:?}: {}, expected {} ({count} of {} elements differ)",
        show(g),
        show(w),
        want.len()
    );
    Difference { message, error: worst.is_finite().then_some(worst), index: Some(index) }
}

fn unravel(mut at: usize, sizes: &[usize]) -> Vec<usize> {
    let mut index = vec![0; sizes.len()];
    for (i, size) in index.iter_mut().zip(sizes).rev() {
        *i = at % size.max(&1);
        at /= size.max(&1);
    }
    index
}

/// Checks an output of a program that draws random numbers; `before` is what the call before gave.
pub fn holds(check: &Check, got: &Value, before: Option<&Value>) -> Option<Difference> {
    let wrong = |message: String| Some(Difference::of_kind(message));
    let Value::Tensor(tensor) = got else { return wrong(format!("{got}, expected a tensor")) };
    if Some(tensor.dtype()) != DType::from_name(&check.dtype) || tensor.sizes() != check.shape {
        return wrong(format!("{got}, expected {} {:?}", check.dtype, check.shape));
    }
    let elements = element::elements(tensor);
    let values: Vec<f64> = elements.iter().map(|v| v.to_f64()).collect();
    if let Some(allowed) = &check.values
        && let Some(other) = values.iter().find(|v| !allowed.contains(v))
    {
        return wrong(format!("{other} is none of the values that occur"));
    }
    let outside = |v: &&f64| check.low.is_some_and(|low| **v < low) || check.high.is_some_and(|high| **v > high);
    if let Some(other) = values.iter().find(outside) {
        return wrong(format!("{other} is out of range"));
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if let Some((expected, off)) = check.mean
        && !within(mean, expected, off)
    {
        return wrong(format!("the mean is {mean:.4}, expected {expected} give or take {off}"));
    }
    if let Some((expected, off)) = check.std {
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
        if !within(deviation, expected, off) {
            return wrong(format!("the deviation is {deviation:.4}, expected {expected} give or take {off}"));
        }
    }
    if check.differs
        && let Some(Value::Tensor(before)) = before
        && before.sizes() == tensor.sizes()
        && element::elements(before) == elements
    {
        return wrong("the same as in the call before".into());
    }
    None
}

/// NaN is not within anything.
fn within(value: f64, expected: f64, off: f64) -> bool {
    (value - expected).abs() <= off
}

/// Whether an output lies in other strides than PyTorch's, which is no fault.
pub fn other_layout(case: &Case, arg: &Arg, got: &Value) -> bool {
    let Value::Tensor(got) = got else { return false };
    let stored = arg.tensor.as_ref().and_then(|key| case.tensor(key).ok());
    stored.is_some() && !douse_core::layout::same(got.sizes(), got.strides(), &arg.stride)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAN: Scalar = Scalar::Float(f64::NAN);
    const INF: Scalar = Scalar::Float(f64::INFINITY);

    fn f(v: f64) -> Scalar {
        Scalar::Float(v)
    }

    #[test]
    fn closeness_is_that_of_torch() {
        assert!(close(f(1.0), f(1.01), 0.01, 0.001));
        assert!(!close(f(1.0), f(1.02), 0.01, 0.001));
        assert!(close(NAN, NAN, 0.0, 0.0) && !close(NAN, f(1.0), 1.0, 1.0));
        assert!(
            close(INF, INF, 0.0, 0.0) && !close(INF, f(1.0), 1.0, 1.0) && !close(INF, f(f64::NEG_INFINITY), 1.0, 1.0)
        );
        assert!(close(Scalar::Complex(3.0, 4.0), Scalar::Complex(3.0, 4.4), 0.1, 0.0));
        assert!(!close(Scalar::Complex(3.0, 4.0), Scalar::Complex(3.0, 4.6), 0.1, 0.0));
    }

    #[test]
    fn an_answer_may_be_twice_as_far_from_the_truth() {
        let (truth, want) = ([f(1.0), f(2.0)], [f(1.1), f(2.0)]);
        assert!(within_truth(&truth, &want, &[f(0.81), f(2.1)]));
        assert!(!within_truth(&truth, &want, &[f(0.7), f(2.0)]));
        assert!(!within_truth(&truth, &want, &[NAN, f(2.0)]), "finite in other places");
        assert!(!within_truth(&truth[..1], &want, &want));
    }

    #[test]
    fn plain_values_compare_as_in_python() {
        assert!(plain(&Value::Int(1), &Value::Bool(true)) && plain(&Value::Float(2.0), &Value::Int(2)));
        assert!(plain(&Value::Float(f64::NAN), &Value::Float(f64::NAN)));
        assert!(!plain(&Value::Int(1), &Value::None) && !plain(&Value::Int(1 << 60), &Value::Int((1 << 60) + 1)));
    }

    #[test]
    fn the_largest_error_and_its_place() {
        let shape = HostTensor::zeros(DType::F32, &[2, 2]).unwrap();
        let (want, got) = ([f(1.0), f(2.0), f(3.0), f(4.0)], [f(1.0), f(2.5), f(5.0), f(4.0)]);
        let difference = largest(&shape, &want, &got, &|a, b| a == b);
        assert_eq!((difference.error, difference.index), (Some(2.0), Some(vec![1, 0])));
        assert!(difference.message.contains("2 of 4 elements"), "{}", difference.message);
    }

    #[test]
    fn drawn_values_are_checked_by_their_properties() {
        let check = |text: &str| serde_json::from_str::<Check>(text).unwrap();
        let tensor = |values: &[f32]| Value::Tensor(HostTensor::from_f32(&[values.len()], values).unwrap());
        let shape = r#"{"dtype": "float32", "shape": [4]"#;
        let got = tensor(&[0.0, 1.0, 1.0, 0.0]);
        assert_eq!(
            holds(&check(&format!("{shape}, \"mean\": [0.5, 0.01], \"std\": [0.577, 0.01]}}")), &got, None),
            None
        );
        for wrong in [
            "\"values\": [0.0]",
            "\"high\": 0.5",
            "\"low\": 0.5",
            "\"mean\": [0.4, 0.01]",
            "\"std\": [0.5, 0.01]",
            "\"differs\": true",
        ] {
            assert!(holds(&check(&format!("{shape}, {wrong}}}")), &got, Some(&got)).is_some(), "{wrong}");
        }
        assert!(holds(&check(&format!("{shape}}}")), &tensor(&[0.0]), None).is_some());
    }
}
