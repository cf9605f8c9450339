// Included by both programs: their tables have this form.

/// Declares the functions and a function that calls all of them.
macro_rules! calls {
    ($($name:ident($y:ident $(, $arg:ident: $type:ty = $value:expr)*) -> $out:ty { $body:expr })*) => {
        $(#[inline(never)]
        fn $name<P: Policy>($y: &Y<'_, P> $(, $arg: $type)*) -> $out { $body })*

        fn all<P: Policy>(y: &Y<'_, P>) {
            $(let _ = std::hint::black_box($name(y $(, std::hint::black_box($value))*));)*
        }
    };
}
