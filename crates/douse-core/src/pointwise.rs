//! The scalar operations: one table each for those of one and of two operands.
//!
//! The graph and the kernels use the same operations, so a pointwise node becomes an instruction as it is.
//! Operands never promote: both operands of a binary operation have one dtype, which is also the dtype of the
//! result, but for comparisons and predicates, which give bool. Half, bfloat16 and float8 compute in float32 and
//! round once per operation. Integers wrap. Complex numbers do not occur: import splits them into parts.

use serde::{Deserialize, Serialize};
use std::fmt;

use crate::DType;

/// What dtypes an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Every dtype, bool included.
    Any,
    /// Integers and floats.
    Number,
    Float,
    /// Integers and bool.
    Bits,
    Bool,
    Int,
}

impl Takes {
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Takes::Any => !dtype.is_complex(),
            Takes::Number => dtype.is_float() || dtype.is_int(),
            Takes::Float => dtype.is_float(),
            Takes::Bits => dtype.is_int() || dtype.is_bool(),
            Takes::Bool => dtype.is_bool(),
            Takes::Int => dtype.is_int(),
        }
    }
}

macro_rules! operations {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident $text:literal $takes:ident $result:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The name in text forms: PyTorch's where it has the operation.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            pub fn from_name(name: &str) -> Option<$name> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }

            /// The dtypes of its operands.
            pub fn takes(self) -> Takes {
                match self { $($name::$variant => Takes::$takes,)* }
            }

            /// The dtype of the result for operands of this dtype.
            pub fn result(self, operand: DType) -> DType {
                match self { $($name::$variant => operations!(@result $result operand),)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
    (@result Same $operand:ident) => { $operand };
    (@result Bool $operand:ident) => { DType::Bool };
    (@result Int32 $operand:ident) => { DType::I32 };
}

operations! {
    /// An operation of one operand.
    Unary {
        Neg "neg" Number Same,
        Abs "abs" Number Same,
        /// -1, 0 or 1; NaN gives 0 as in `torch.sign`.
        Sign "sign" Number Same,
        /// Logical not.
        Not "logical_not" Bool Same,
        BitwiseNot "bitwise_not" Int Same,
        Reciprocal "reciprocal" Float Same,
        Sqrt "sqrt" Float Same,
        Rsqrt "rsqrt" Float Same,
        Exp "exp" Float Same,
        Exp2 "exp2" Float Same,
        Expm1 "expm1" Float Same,
        Log "log" Float Same,
        Log2 "log2" Float Same,
        Log10 "log10" Float Same,
        Log1p "log1p" Float Same,
        Sin "sin" Float Same,
        Cos "cos" Float Same,
        Tan "tan" Float Same,
        Asin "asin" Float Same,
        Acos "acos" Float Same,
        Atan "atan" Float Same,
        Sinh "sinh" Float Same,
        Cosh "cosh" Float Same,
        Tanh "tanh" Float Same,
        Asinh "asinh" Float Same,
        Acosh "acosh" Float Same,
        Atanh "atanh" Float Same,
        Sigmoid "sigmoid" Float Same,
        Erf "erf" Float Same,
        Erfc "erfc" Float Same,
        Erfinv "erfinv" Float Same,
        Floor "floor" Float Same,
        Ceil "ceil" Float Same,
        /// To the nearest integer, halves to even.
        Round "round" Float Same,
        Trunc "trunc" Float Same,
        IsNan "isnan" Float Bool,
        IsInf "isinf" Float Bool,
        Signbit "signbit" Float Bool,
        /// The mantissa of `torch.frexp`, in [0.5, 1).
        FrexpMantissa "frexp_mantissa" Float Same,
        FrexpExponent "frexp_exponent" Float Int32,
        Lgamma "lgamma" Float Same,
        Digamma "digamma" Float Same,
        Erfcx "erfcx" Float Same,
        Ndtri "ndtri" Float Same,
        LogNdtr "log_ndtr" Float Same,
        I0 "i0" Float Same,
        I0e "i0e" Float Same,
        I1 "i1" Float Same,
        I1e "i1e" Float Same,
        BesselJ0 "bessel_j0" Float Same,
        BesselJ1 "bessel_j1" Float Same,
        BesselY0 "bessel_y0" Float Same,
        BesselY1 "bessel_y1" Float Same,
        ModifiedBesselK0 "modified_bessel_k0" Float Same,
        ModifiedBesselK1 "modified_bessel_k1" Float Same,
        ScaledModifiedBesselK0 "scaled_modified_bessel_k0" Float Same,
        ScaledModifiedBesselK1 "scaled_modified_bessel_k1" Float Same,
        SphericalBesselJ0 "spherical_bessel_j0" Float Same,
        AiryAi "airy_ai" Float Same,
    }
}

operations! {
    /// An operation of two operands.
    Binary {
        Add "add" Number Same,
        Sub "sub" Number Same,
        Mul "mul" Number Same,
        /// True division.
        Div "div" Float Same,
        /// Rounded towards negative infinity; on floats by PyTorch's fmod rule. An integer over 0 gives 0 on the device and is an error on the host.
        FloorDivide "floor_divide" Number Same,
        /// Integer division rounded towards zero.
        TruncDivide "trunc_divide" Int Same,
        /// With the sign of the divisor, as Python's `%`.
        Remainder "remainder" Number Same,
        /// With the sign of the dividend, as C's.
        Fmod "fmod" Number Same,
        /// Integers: negative exponents give 0, but for bases 1 and -1.
        Pow "pow" Number Same,
        /// NaN wins.
        Minimum "minimum" Any Same,
        /// NaN wins.
        Maximum "maximum" Any Same,
        /// A number wins over NaN.
        Fmin "fmin" Float Same,
        /// A number wins over NaN.
        Fmax "fmax" Float Same,
        Atan2 "atan2" Float Same,
        Hypot "hypot" Float Same,
        Copysign "copysign" Float Same,
        Nextafter "nextafter" Float Same,
        Eq "eq" Any Bool,
        Ne "ne" Any Bool,
        Lt "lt" Any Bool,
        Le "le" Any Bool,
        Gt "gt" Any Bool,
        Ge "ge" Any Bool,
        /// Bitwise; on bool logical.
        And "bitwise_and" Bits Same,
        Or "bitwise_or" Bits Same,
        Xor "bitwise_xor" Bits Same,
        /// A shift by the width or more, or by a negative number, gives 0.
        ShiftLeft "bitwise_left_shift" Int Same,
        /// Arithmetic on signed dtypes; a shift by the width or more, or by a negative number, gives the sign's fill.
        ShiftRight "bitwise_right_shift" Int Same,
        Gcd "gcd" Int Same,
        Lcm "lcm" Int Same,
        /// First operand a, second x: the regularised lower incomplete gamma function.
        Igamma "igamma" Float Same,
        Igammac "igammac" Float Same,
        /// Hurwitz zeta of (x, q).
        Zeta "zeta" Float Same,
        /// First operand the order n, a whole number.
        Polygamma "polygamma" Float Same,
        ChebyshevT "chebyshev_polynomial_t" Float Same,
        ChebyshevU "chebyshev_polynomial_u" Float Same,
        ChebyshevV "chebyshev_polynomial_v" Float Same,
        ChebyshevW "chebyshev_polynomial_w" Float Same,
        ShiftedChebyshevT "shifted_chebyshev_polynomial_t" Float Same,
        ShiftedChebyshevU "shifted_chebyshev_polynomial_u" Float Same,
        ShiftedChebyshevV "shifted_chebyshev_polynomial_v" Float Same,
        ShiftedChebyshevW "shifted_chebyshev_polynomial_w" Float Same,
        HermiteH "hermite_polynomial_h" Float Same,
        HermiteHe "hermite_polynomial_he" Float Same,
        LaguerreL "laguerre_polynomial_l" Float Same,
        LegendreP "legendre_polynomial_p" Float Same,
    }
}

operations! {
    /// An operation that combines many values: associative and commutative, with a value that changes nothing.
    Combine {
        /// Floats add at least as exactly as pairwise summation.
        Sum "sum" Number Same,
        Prod "prod" Number Same,
        /// NaN wins.
        Min "amin" Any Same,
        /// NaN wins.
        Max "amax" Any Same,
        And "all" Bool Same,
        Or "any" Bool Same,
        Xor "xor" Bits Same,
        /// log(exp(a) + exp(b)).
        LogAddExp "logaddexp" Float Same,
    }
}
