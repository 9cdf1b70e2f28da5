"""Jobs on clusters whose machines have nothing but what the job brings."""
