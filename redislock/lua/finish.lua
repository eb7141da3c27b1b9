-- Ends a script that has the table of a name. That and its own text are the function general.

local done, answer = pcall(general)
if not done then answer = failure(answer) end
return answer
